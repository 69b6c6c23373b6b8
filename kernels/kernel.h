// A kernel: arithmetic on raw pointers, found by name. kernels/kernels.inc declares every kernel;
// kernels/cpu and kernels/cuda implement it for each target. The engine calls kernels through this
// header alone. Nothing here knows about tensors, StarPU or Lua.
#pragma once
#include <string>
#include <vector>

#include "kernels/call.h"

namespace nn {

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
    KernelsFn many = nullptr;
};

struct Kernel {
    std::string name;
    Bound bound;
    std::vector<OperandDecl> operands;
    std::string params_type;  // the C struct's name in kernels/params/
    size_t params_size;
    int tf32_offset;  // of the int32_t params.tf32, -1 without one
    std::vector<Implementation> implementations = {};
    KernelFn best[int(Device::count)] = {};
    KernelsFn best_of_many[int(Device::count)] = {};

    // The implementation for the best usable target of a device, or for one target, or nullptr.
    KernelFn on(Device device) const { return best[int(device)]; }
    KernelFn on(const Target& target) const;
    // Computes several calls with one dtype at once, with the same bits as one after the other;
    // nullptr if that is not faster.
    KernelsFn many_on(Device device) const { return best_of_many[int(device)]; }
    KernelsFn many_on(const Target& target) const;
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
bool failure_is_injected();

}  // namespace nn
