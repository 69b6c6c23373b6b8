// What a kernel is: arithmetic on raw pointers, found by name. The engine calls kernels through
// this header alone; a kernel file includes it and registers itself. Nothing here knows of tensors,
// StarPU or Lua.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params.h"

namespace nn {

// Order matters only to kernels/registry.cc and to nn.h, where the same numbers are public.
enum class Dtype : uint8_t { f32, f64, bf16, i32, i64, u8, boolean };
constexpr int dtype_count = 7;

size_t dtype_size(Dtype dtype);
bool representable(double value, Dtype dtype);  // integers hold whole numbers of their range only
const char* dtype_name(Dtype dtype);
constexpr bool is_float(Dtype d) { return d == Dtype::f32 || d == Dtype::f64 || d == Dtype::bf16; }
// What sums of a dtype are kept in: f32 for bf16, i64 for integers and booleans, itself otherwise.
constexpr Dtype accumulator(Dtype d) {
    return d == Dtype::bf16 ? Dtype::f32 : is_float(d) ? d : Dtype::i64;
}

// Where a kernel that runs on a GPU says that its data are wrong (a token id outside the
// vocabulary): the call returns before they were looked at. Lies in memory that both sides see. The
// engine reads it when the task is over.
struct Fault {
    int64_t value;     // set by the device, of whichever element came first
    int32_t failed;    // likewise
    char format[116];  // set by the kernel before its launch: printf text with one %lld, for value
};

// What a GPU worker lends its kernels. Calls on one stream use the workspace one after the other.
struct Gpu {
    int device;       // CUDA's number
    void* workspace;  // device memory, aligned to 256 bytes
    size_t workspace_bytes;
    void* blas;   // cuBLASLt's handle and plans
    void* cudnn;  // cuDNN's, or nullptr where there is none
};

// One call of a kernel on one tile. Operands come in the order of the kernel's declaration; an
// absent optional operand is nullptr. Tiles are contiguous and row-major.
struct KernelCall {
    void* const* operands;
    const void* params;  // the kernel's own struct of params.h
    Dtype dtype;  // of the data the kernel is named after; params name other dtypes where there are
                  // any
    void* stream;  // cudaStream_t on a GPU, nullptr on a CPU
    mutable std::string*
        error;  // set by fail(); the engine turns it into an error with op, tile and shape
    const Gpu* gpu = nullptr;  // on a GPU
    Fault* fault = nullptr;    // likewise; failed is 0

    template <class T> T* operand(int i) const { return static_cast<T*>(operands[i]); }
    template <class P> const P& get() const { return *static_cast<const P*>(params); }
    // Notes a failure (printf style), once; the kernel then leaves its outputs finite and returns.
    void fail(const char* format, ...) const __attribute__((format(printf, 2, 3)));
};
using KernelFn = void (*)(const KernelCall&);

enum class Isa { baseline, avx2, avx512 };
constexpr int isa_count = 3;
enum class Mode : uint8_t { read, write, read_write };
enum class Device : uint8_t { cpu, cuda, count };
enum class Bound : uint8_t { memory, products };

struct OperandDecl {
    std::string name;
    Mode mode;
    bool optional;
    bool operator==(const OperandDecl&) const = default;
};

// A registered kernel. `cpu` is the variant for the machine at hand, chosen once at the first
// look-up.
struct Kernel {
    std::string name;
    std::vector<OperandDecl> operands;
    std::string params_type;  // the C struct's name in params.h
    size_t params_size = 0;
    KernelFn by_isa[isa_count] = {};
    KernelFn cuda = nullptr;
    KernelFn cpu = nullptr;
    Bound bound = Bound::products;
    int tf32_offset = -1;
    KernelFn on(Device device) const { return device == Device::cpu ? cpu : cuda; }
};

const Kernel* find_kernel(const std::string& name);  // nullptr when there is none
std::vector<const Kernel*> all_kernels();            // sorted by name
Isa machine_isa();  // the best that this CPU runs; NNLUA_ISA=baseline|avx2|avx512 lowers it
const char* isa_name(Isa isa);

// `operands` reads like "y:w x:r bias:r?": name, access (r, w, rw), ? for optional.
struct KernelRegistrar {
    KernelRegistrar(const char* name, Isa isa, const char* operands, const char* params_type,
                    size_t params_size, KernelFn fn);
    // The CUDA variant; `operands` and the params must match the CPU one's.
    KernelRegistrar(const char* name, const char* operands, const char* params_type,
                    size_t params_size, KernelFn fn);
};

// For tests of what becomes of failures: NNLUA_FAIL_KERNEL=name:n lets the n-th call of a kernel
// fail, on a GPU as if CUDA had reported a failure of its launch. The engine announces every call
// on the worker's thread; take_failure() is then true, once, for whoever asks for CUDA's status
// first, or with name:n:status:k for whoever asks k-th. With name:n:hang, or name:n:seconds, that
// call stalls, in announce_call, and does not fail.
void plan_failure(const char* text);  // instead of the environment's; "" for none
void announce_call(const char* kernel);
bool take_failure();

}  // namespace nn

// In a kernels/cpu file, inside namespace nn::NN_ISA: registers function `name` under its own name.
#define NN_KERNEL(name, operands, params)                                                     \
    const ::nn::KernelRegistrar registrar_##name(#name, ::nn::Isa::NN_ISA, operands, #params, \
                                                 sizeof(params), &name)
