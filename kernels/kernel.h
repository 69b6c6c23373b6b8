// A kernel: arithmetic on raw pointers, found by name. kernels/kernels.inc declares every kernel;
// kernels/cpu and kernels/cuda implement it for each target. The engine calls kernels through this
// header alone. Nothing here knows about tensors, StarPU or Lua.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params.h"

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
    const void* params;          // the kernel's own struct in params.h
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
};
using KernelFn = void (*)(const KernelCall&);

// Kinds of devices; a new kind comes before `count`.
enum class Device : uint8_t { cpu, cuda, count };

// What implementations are compiled for: an instruction set, or a kind of GPU. kernels/targets.cc
// lists the targets; the name is also the namespace of the implementations (NN_TARGET).
struct Target {
    const char* name;
    Device device;
    bool (*usable)();                // whether this machine can run it
    const char* openblas = nullptr;  // OPENBLAS_CORETYPE to use with it; nullptr: none
};
const Target& add_target(const Target& target);      // to those of targets.cc, for tests
const Target* find_target(const std::string& name);  // nullptr if there is none
// The best last. NNLUA_ISA names the last CPU target to use.
std::vector<const Target*> usable_targets(Device device);
const Target& cpu_target();  // the last of them

enum class Mode : uint8_t { read, write, read_write };
enum class Bound : uint8_t { memory, products };  // products: by the rate of matrix products

struct OperandDecl {
    std::string name;
    Mode mode;
    bool optional;
};

struct Implementation {
    const Target* target;
    KernelFn function;
};

struct Kernel {
    std::string name;
    Bound bound;
    std::vector<OperandDecl> operands;
    std::string params_type;  // the C struct's name in params.h
    size_t params_size;
    int tf32_offset;  // of the int32_t params.tf32, -1 without one
    std::vector<Implementation> implementations = {};
    KernelFn best[int(Device::count)] = {};

    // The implementation for the best usable target of a device, or for one target, or nullptr.
    KernelFn on(Device device) const { return best[int(device)]; }
    KernelFn on(const Target& target) const;
    bool allows_tf32(const void* params) const;  // for f32 operands
};

const Kernel* find_kernel(const std::string& name);  // nullptr if there is none
std::vector<const Kernel*> all_kernels();            // sorted by name

// Injected failures, for tests: NNLUA_FAIL_KERNEL=name:n makes the n-th call of a kernel fail, on a
// GPU as if CUDA had reported a failed launch. The engine announces every call on the worker's
// thread; take_failure() is then true once, for the first caller that asks for a status, or with
// name:n:status:k for the k-th. name:n:hang and name:n:seconds stall the call in announce_call.
void inject_failure(const char* text);  // replaces the environment's; "" for none
void announce_call(const char* kernel);
bool take_failure();

}  // namespace nn
