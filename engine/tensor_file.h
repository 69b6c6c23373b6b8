// A file that tensors are written to while other work goes on. Every tile is held for reading from
// the moment it is given, so that a later change of it waits for that tile alone, until a thread
// has copied it into its buffer. The buffer goes to the disk past the page cache where the file
// system can do that: filling the cache takes more of the processor's time than all the rest.
#pragma once
#include <memory>
#include <string>
#include <thread>

#include "engine/tensor.h"

namespace nn {

class TensorFile {
public:
    TensorFile(const std::string& path, int64_t bytes);  // makes it, with room for so many
    ~TensorFile();  // what is not written by then stays unwritten; to be gone before shutdown()
    TensorFile(const TensorFile&) = delete;

    // What the file holds, from its beginning on.
    void append(const void* data, int64_t bytes);
    void append(const Tensor& tensor);  // row-major, as it is after all that was submitted so far
    void drain() const;                 // until all that was given is copied
    void close();                       // nothing more comes: once written it is made durable
    bool done() const;                  // durable, or failed
    void wait() const;                  // until done(); throws what went wrong
    uint32_t crc32() const;             // of the whole file; waits

    struct State;

private:
    void take(int64_t bytes);

    const int64_t bytes_;
    std::shared_ptr<State> state_;  // shared with the thread, and with tiles that are asked for
    std::thread writer_;
    int64_t appended_ = 0;
    bool closed_ = false;
};

// CRC-32 as zlib's; `crc` goes on from an earlier one.
uint32_t crc32_of(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace nn
