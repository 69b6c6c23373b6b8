// The devices for tests of CUDA kernels: the emulated one of tests/emulated, and the machine's
// first GPU if it has one.
#pragma once
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace nn::test {

struct CudaDevice {
    const Target* target;
    void* (*allocate)(size_t bytes);  // device memory, aligned to 256 bytes
    void (*release)(void* memory);
    void (*copy)(void* to, const void* from, size_t bytes);  // between any two memories; waits
    void (*fill)(void* memory, int byte, size_t bytes);
    std::string (*finish)();  // waits for the device; returns its error or ""
    Gpu gpu;
    Fault* fault;
};
const std::vector<const CudaDevice*>& cuda_devices();
const CudaDevice* emulated_device();  // nullptr in builds with sanitizers
int64_t cudnn_executions();           // of the emulated cuDNN so far

}  // namespace nn::test
