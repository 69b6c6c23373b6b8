// One call of a kernel: what kernels/cpu and kernels/cuda know of the engine. Every kernel includes
// this, so it includes little.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>  // std::string, incomplete

namespace nn {

// bindings/nn.h makes these numbers public.
enum class Dtype : uint8_t { f32, f64, bf16, i32, i64, u8, boolean };
constexpr int dtype_count = 7;

size_t dtype_size(Dtype dtype);
bool representable(double value, Dtype dtype);  // integer dtypes: whole numbers in their range
const char* dtype_name(Dtype dtype);
constexpr bool is_float(Dtype d) { return d == Dtype::f32 || d == Dtype::f64 || d == Dtype::bf16; }
// The dtype of sums: f32 for bf16, i64 for integers and booleans, otherwise the dtype itself.
constexpr Dtype accumulator(Dtype d) {
    return d == Dtype::bf16 ? Dtype::f32 : is_float(d) ? d : Dtype::i64;
}

// A GPU kernel reports bad data here, such as a token id outside the vocabulary: the call returns
// before the GPU reads the data. Host and device see this memory; the engine reads it after the
// task.
struct Fault {
    int64_t value;     // of any bad element; set by the device
    int32_t failed;    // set by the device
    char format[116];  // printf text with one %lld for the value; set before the launch
};

// What a GPU worker provides to its kernels. Calls on one stream use the workspace in turn.
struct Gpu {
    int device;       // CUDA's number
    void* workspace;  // device memory, aligned to 256 bytes
    size_t workspace_bytes;
    void* blas;   // cuBLASLt's handle and algorithms
    void* cudnn;  // cuDNN's handle and plans, or nullptr without cuDNN
};

// One call of a kernel on one tile. Operands come in the order of the declaration; an absent
// optional operand is nullptr. Tiles are contiguous and row-major.
struct KernelCall {
    void* const* operands;
    const void* params;          // the kernel's own struct of kernels/params/
    Dtype dtype;                 // of the main operands; params name other dtypes where they occur
    void* stream;                // cudaStream_t on a GPU, nullptr on a CPU
    mutable std::string* error;  // set by fail(); the engine adds op, tile and shape
    const Gpu* gpu = nullptr;    // on a GPU
    Fault* fault = nullptr;      // on a GPU; `failed` is 0

    template <class T> T* operand(int i) const { return static_cast<T*>(operands[i]); }
    template <class T> const T* input(int i) const { return operand<const T>(i); }
    template <class P> const P& get() const { return *static_cast<const P*>(params); }
    // Records the first failure (printf style). The kernel then makes its outputs finite and
    // returns.
    void fail(const char* format, ...) const __attribute__((format(printf, 2, 3)));
    bool has_failed() const;
};
using KernelFn = void (*)(const KernelCall&);
using KernelsFn = void (*)(const KernelCall* calls, int count);

// True once after an injected failure (kernels/kernel.h), for the first caller.
bool take_failure();

}  // namespace nn
