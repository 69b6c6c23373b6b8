#include "tests/cpp/cuda_device.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernels/cuda/device.h"
#if defined(NN_CUDA)
#include <cuda_runtime_api.h>
#endif

#if defined(NN_EMULATED)
namespace nn::emulated {
void* open_blas();  // as in kernels/cuda/device.h
void* open_cudnn();
}  // namespace nn::emulated
#endif

namespace nn::test {

#if !defined(NN_EMULATED)
int64_t cudnn_executions() { return 0; }
#endif

namespace {

[[maybe_unused]] constexpr size_t workspace_bytes = 4 << 20;  // small, to test work in chunks

#if defined(NN_EMULATED)
void* host_allocate(size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }

CudaDevice make_emulated() {
    static Fault fault{};
    return {find_target("emulated"),
            host_allocate,
            std::free,
            [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); },
            [](void* memory, int byte, size_t bytes) { std::memset(memory, byte, bytes); },
            [] { return std::string(); },
            {0, host_allocate(workspace_bytes), workspace_bytes, emulated::open_blas(),
             emulated::open_cudnn()},
            &fault};
}
#endif

#if defined(NN_CUDA)
void need(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

void* device_allocate(size_t bytes) {
    void* memory = nullptr;
    need(cudaMalloc(&memory, bytes));
    return memory;
}

CudaDevice make_gpu() {
    void* fault = nullptr;
    need(cudaHostAlloc(&fault, sizeof(Fault), cudaHostAllocDefault));
    return {find_target("cuda"),
            device_allocate,
            [](void* memory) { need(cudaFree(memory)); },
            [](void* to, const void* from, size_t bytes) {
                need(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
            },
            [](void* memory, int byte, size_t bytes) { need(cudaMemset(memory, byte, bytes)); },
            [] {
                const cudaError_t status = cudaDeviceSynchronize();
                return std::string(status == cudaSuccess ? "" : cudaGetErrorString(status));
            },
            {0, device_allocate(workspace_bytes), workspace_bytes, cuda::open_blas(),
             cuda::open_cudnn()},
            static_cast<Fault*>(fault)};
}

bool has_gpu() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}
#endif

}  // namespace

const CudaDevice* emulated_device() {
#if defined(NN_EMULATED)
    static const CudaDevice* const device = new CudaDevice(make_emulated());
    return device;
#else
    return nullptr;
#endif
}

const std::vector<const CudaDevice*>& cuda_devices() {
    static const std::vector<const CudaDevice*> devices = [] {
        std::vector<const CudaDevice*> found;
        if (const CudaDevice* device = emulated_device()) found.push_back(device);
#if defined(NN_CUDA)
        if (has_gpu()) found.push_back(new CudaDevice(make_gpu()));
#endif
        return found;
    }();
    return devices;
}

}  // namespace nn::test
