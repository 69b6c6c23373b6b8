// A file that tensors are written to while other work goes on. Every tile is held for reading from
// the moment it is given, so that a later change of it waits for that tile alone, until a thread
// has copied it (io/output_file.h).
#pragma once
#include <memory>
#include <string>
#include <thread>

#include "engine/tile/tensor.h"

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

}  // namespace nn
