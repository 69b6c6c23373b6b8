// The disk as a tier of memory: extents of one unnamed file, read and written by threads of its
// own. The file has no name, so nothing remains of it when the process ends in whatever way.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/memory/disk_checks.h"
#include "engine/memory/disk_faults.h"

namespace nn {

// Extents begin at multiples of this and have multiples of it as sizes, like the memory that they
// are read into and written from: transfers bypass the page cache if the file system allows it.
constexpr int64_t disk_block = 4096;
inline int64_t disk_bytes(int64_t bytes) {
    return (bytes + disk_block - 1) / disk_block * disk_block;
}

// What a transfer moves: text for errors, kind (TileKind) for profiles.
struct TransferName {
    std::string text;
    uint8_t kind;
    TransferName(std::string t, uint8_t k = 0) : text(std::move(t)), kind(k) {}
    TransferName(const char* t) : text(t), kind(0) {}
};

class Disk {
public:
    using Done = std::function<void(const std::string& error)>;  // "" for success
    // One thread reaches the rate of a virtual disk; the others keep small transfers from waiting
    // behind large ones. Drives with several queues need them.
    static constexpr int default_threads = 4;
    struct Options {
        std::string folder;
        double bytes_per_second = 0;  // at most, both directions together; 0: no limit
        int threads = default_threads;
    };
    struct Totals {
        int64_t read = 0, written = 0;  // bytes
        double busy = 0;                // seconds in which at least one transfer was under way
    };

    explicit Disk(const Options& options);  // throws Error
    ~Disk();                                // waits for transfers
    Disk(const Disk&) = delete;

    // Reserves an extent, which reads as zeros until it is written if it was never used before.
    // Throws Error if the disk is full. A file system that cannot reserve space gives a file with
    // holes; a full disk is then an error of a write. Any thread.
    int64_t allocate(int64_t bytes, const std::string& what);
    void release(int64_t offset, int64_t bytes);
    int64_t allocated_bytes() const;  // of all extents

    // Begin a transfer. `done` is called on a thread of this class, which it must not block. Among
    // waiting transfers, the one with the lowest `order` is next.
    void read(int64_t offset, void* to, int64_t bytes, uint64_t order, TransferName what,
              Done done);
    void write(int64_t offset, const void* from, int64_t bytes, uint64_t order, TransferName what,
               Done done);
    Totals totals() const;

private:
    struct Transfer {
        bool writes;
        int64_t offset, bytes;
        char* memory;
        uint64_t order, number;
        double added;  // seconds; 0 without a limit on the rate
        TransferName what;
        Done done;
        double queued = 0;  // microseconds of now_us()
    };
    struct Later {
        bool operator()(const Transfer& a, const Transfer& b) const {
            return a.order != b.order ? a.order > b.order : a.number > b.number;
        }
    };
    int open_file();  // returns a file descriptor; throws Error
    int open_unnamed(int flags);
    int reserve(int64_t bytes);  // at the end of the file; returns an errno
    void add(Transfer transfer);
    void end_threads();
    void work();  // a thread
    double end_of_turn(const Transfer& transfer);
    void begin_busy();
    void end_busy();
    std::string carry_out(const Transfer& transfer);
    int64_t transfer_some(const Transfer& transfer, int64_t done);
    std::string problem(const Transfer& transfer, const std::string& reason) const;

    const Options options_;
    const int process_;  // threads do not exist in a process that fork() makes
    DiskFaults faults_;
    DiskChecks checks_;
    std::atomic<bool> direct_{true};  // transfers bypass the page cache
    int fd_ = -1;
    mutable std::mutex mutex_;
    std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
    std::priority_queue<Transfer, std::vector<Transfer>, Later> waiting_;
    std::map<int64_t, std::vector<int64_t>> free_;  // extents by size
    int64_t end_ = 0, allocated_ = 0;
    uint64_t transfers_ = 0;
    int under_way_ = 0;
    double busy_since_ = 0, turn_end_ = 0;
    Totals totals_;
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace nn
