// Checks without a GPU that cuDNN supports our attention graphs on an A100 and an H100, and
// compiles its kernels for them. Prints a line for each case; the exit status is 1 if one is not
// supported.
//   cudnn_plans DRIVER      DRIVER: the stand-in for libcuda.so.1, compiled from driver.c
// Prints "skipped: why" if there is no cuDNN, or a real driver.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "kernels/cuda/attention_graph.h"

namespace {

using namespace nn::cuda;

// The properties of a GPU that cuDNN 9.8 and later need
// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), for NVIDIA's A100 and H100 SXM (CUDA C++ Programming
// Guide, compute capabilities).
struct Device {
    const char* name;
    int version, multiprocessors, shared_memory, blocks, l2_bytes, clock_khz, memory_khz;
};
const Device devices[] = {
    {"A100", 800, 108, 166912, 32, 41943040, 1410000, 1593000},
    {"H100", 900, 132, 232448, 32, 52428800, 1980000, 2619000},
};

std::string json_of(const Device& d) {
    char text[1024];
    std::snprintf(
        text, sizeof text,
        "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,"
        "\"multiProcessorCount\":%d,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,"
        "\"maxCtasPerSM\":%d,\"l2CacheSize\":%d,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
        "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"warpSize\":32,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,"
        "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":85000000000}",
        d.name, d.version, d.multiprocessors, d.shared_memory, d.blocks, d.l2_bytes, d.clock_khz,
        d.memory_khz);
    return text;
}

Descriptor describe(const Device& d) {
    const std::string json = json_of(d);
    cudnnBackendDescriptor_t raw = nullptr;
    CudnnFailure failure;
    failure.check(cudnn().descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &raw), "");
    Descriptor device(raw);
    failure.check(cudnn().set(raw, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                              int64_t(json.size()), json.data()),
                  "");
    failure.check(cudnn().finalize(raw), "");
    if (failure.status != CUDNN_STATUS_SUCCESS) throw std::runtime_error(failure.message);
    return device;
}

struct Size {
    int64_t batch, heads, kv_heads, head_dim, len;
};
// GPT-2 124M and 1.5B, heads of 128, grouped heads, and lengths that are no multiple of a block.
const Size sizes[] = {{16, 12, 12, 64, 1024}, {8, 25, 25, 64, 1024}, {4, 16, 16, 128, 2048},
                      {2, 32, 8, 128, 1024},  {1, 6, 6, 64, 1000},   {3, 4, 2, 64, 70},
                      {2, 2, 2, 64, 2}};

bool try_case(const Device& d, const Descriptor& device, const AttentionCase& c) {
    CudnnFailure failure;
    const ExecutionPlan plan = attention_plan(c, nullptr, device.get(), failure);
    std::printf("%s (%lld,%lld) %lld/%lld heads of %lld%s %s: ", d.name, (long long)c.batch,
                (long long)c.len, (long long)c.heads, (long long)c.kv_heads, (long long)c.head_dim,
                c.causal ? "" : " not causal",
                !c.backward       ? "forward"
                : c.deterministic ? "backward, deterministic"
                                  : "backward");
    if (plan.plan)
        std::printf("ok, %lld bytes\n", (long long)plan.workspace_bytes);
    else
        std::printf("not supported: %s: %s\n", failure.call, failure.message.c_str());
    return bool(plan.plan);
}

bool try_size(const Device& d, const Descriptor& device, const Size& s, bool causal) {
    const int64_t out = s.heads * s.head_dim, width = out + 2 * s.kv_heads * s.head_dim;
    AttentionCase c{s.batch, s.heads, s.kv_heads, s.head_dim, s.len,
                    width,   out,     causal,     false,      false};
    bool good = try_case(d, device, c);
    c.backward = true;
    good = try_case(d, device, c) && good;
    c.deterministic = true;
    return try_case(d, device, c) && good;
}

}  // namespace

int main(int count, char** arguments) {
    if (void* real = dlopen("libcuda.so.1", RTLD_NOW)) {
        (void)real;
        return std::puts("skipped: a driver is installed"), 0;
    }
    // Later calls of dlopen find this as libcuda.so.1.
    if (count != 2 || !dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL))
        return std::printf("the stand-in for the driver cannot be loaded: %s\n", dlerror()), 1;
    try {
        cudnn();
    } catch (const std::runtime_error& e) {
        return std::printf("skipped: %s\n", e.what()), 0;
    }
    bool good = true;
    try {
        for (const Device& d : devices) {
            const Descriptor device = describe(d);
            for (const Size& s : sizes) good = try_size(d, device, s, true) && good;
            good = try_size(d, device, sizes[4], false) && good;
        }
    } catch (const std::runtime_error& e) {
        return std::printf("a device cannot be described: %s\n", e.what()), 1;
    }
    return good ? 0 : 1;
}
