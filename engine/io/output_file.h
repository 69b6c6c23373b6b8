// A file that a separate thread writes sequentially, bypassing the page cache if the file system
// allows it: filling the cache takes more CPU time than everything else. append() does not wait for
// the disk while the budget has memory for another block.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/threads.h"

namespace nn {

class OutputFile {
public:
    OutputFile(const std::string& path, int64_t bytes);  // creates it and reserves `bytes`
    ~OutputFile();                                       // drops unwritten data
    OutputFile(const OutputFile&) = delete;

    void append(const char* data, size_t bytes);  // copies
    void finish();                                // returns when all is durable
    uint32_t crc() const { return crc_; }         // CRC-32 of the appended data

private:
    using Block = std::shared_ptr<char>;  // from the arena
    struct Piece {
        Block block;
        size_t bytes = 0;
    };

    template <class F> void change(F f) {
        std::lock_guard lock(mutex_);
        f();
        changed_.notify_all();
    }
    Block block();        // waits for the disk if there is no memory for one more
    void enqueue();       // the piece being filled
    void write_pieces();  // the thread
    void write_piece(const Piece& piece);
    void use_page_cache();  // from now on

    const size_t block_bytes_;
    int fd_;
    Piece filling_;
    uint32_t crc_ = 0;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> pieces_;  // to write
    std::vector<Block> empty_;
    size_t blocks_ = 0;  // allocated
    std::string error_;
    bool closed_ = false, abandoned_ = false;
    std::thread thread_;
};

// Bytes of the blocks that a file takes even beyond the budget.
int64_t least_file_memory();

// CRC-32 as zlib's; `crc` continues an earlier one.
uint32_t crc32_of(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace nn
