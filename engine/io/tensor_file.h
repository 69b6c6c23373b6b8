// A file to which tensors are written in the background. append() acquires all tiles for reading,
// so a later task that changes a tile waits until a thread has copied it, but not for other tiles
// (io/output_file.h).
#pragma once
#include <memory>
#include <string>
#include <thread>

#include "engine/tile/tensor.h"

namespace nn {

class TensorFile {
public:
    TensorFile(const std::string& path, int64_t bytes);  // creates it and reserves `bytes`
    ~TensorFile();  // drops unwritten data; call it before shutdown()
    TensorFile(const TensorFile&) = delete;

    void append(const void* data, int64_t bytes);
    void append(const Tensor& tensor);  // row-major, with its value after all tasks so far
    void drain() const;                 // waits until all appended data is copied
    void close();                       // after the last append(); starts to make the file durable
    bool done() const;                  // durable, or failed
    void wait() const;                  // until done(); throws the error if it failed
    uint32_t crc32() const;             // of the whole file; waits

    struct State;

private:
    void count_bytes(int64_t bytes);

    const int64_t bytes_;
    std::shared_ptr<State> state_;  // shared with the thread and with requests for tiles
    std::thread writer_;
    int64_t appended_ = 0;
    int64_t failed_before_ = 0;  // failed_tasks() when the file began
    bool closed_ = false;
};

}  // namespace nn
