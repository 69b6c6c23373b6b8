// A file that tensors are written to while other work continues. Every tile is held for reading
// from the moment it is given, so that a later change of it waits for that tile alone, until a
// thread has copied it (io/output_file.h).
#pragma once
#include <memory>
#include <string>
#include <thread>

#include "engine/tile/tensor.h"

namespace nn {

class TensorFile {
public:
    TensorFile(const std::string& path, int64_t bytes);  // creates it, with room for `bytes`
    ~TensorFile();  // drops what is not written yet; call it before shutdown()
    TensorFile(const TensorFile&) = delete;

    void append(const void* data, int64_t bytes);
    void append(const Tensor& tensor);  // row-major, as it is after all tasks submitted so far
    void drain() const;                 // waits until all that was appended is copied
    void close();                       // after the last append(): the file is made durable
    bool done() const;                  // durable, or failed
    void wait() const;                  // until done(); throws what went wrong
    uint32_t crc32() const;             // of the whole file; waits

    struct State;

private:
    void take(int64_t bytes);

    const int64_t bytes_;
    std::shared_ptr<State> state_;  // shared with the thread and with requests for tiles
    std::thread writer_;
    int64_t appended_ = 0;
    bool closed_ = false;
};

}  // namespace nn
