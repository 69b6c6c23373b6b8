// A file that tensors are written to while other work goes on: every piece of a tile is one task of
// the lowest priority that reads it, so a later change of the tile waits for its own pieces alone.
#pragma once
#include <memory>
#include <string>
#include <thread>

#include "engine/tensor.h"

namespace nn {

class TensorFile {
public:
    TensorFile(const std::string& path, int64_t bytes);  // makes it, with room for so many
    ~TensorFile();  // what is not written by then stays unwritten
    TensorFile(const TensorFile&) = delete;

    void write(int64_t offset, const void* data, int64_t bytes);  // at once
    // Row-major, as the values are after all that was submitted so far.
    void write(int64_t offset, const Tensor& tensor);
    void close();       // nothing more comes: once all is written it is made durable, by a thread
    bool done() const;  // durable, or failed
    void wait() const;  // until done(); throws what went wrong
    uint32_t crc32() const;  // of the whole file, once it is done

    struct State;

private:
    void check(int64_t offset, int64_t bytes) const;

    std::shared_ptr<State> state_;  // shared with the tasks
    std::thread finisher_;
};

// CRC-32 as zlib's; `crc` goes on from an earlier one.
uint32_t crc32_of(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace nn
