// The scheduler behind tests/emulated/cuda_runtime.h: fibers for the threads of a block.
#include <sys/mman.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <map>
#include <vector>

#include "cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace nn::test {
namespace {

constexpr size_t stack_bytes = 128 << 10;

struct Barrier {
    unsigned arrived = 0, generation = 0;
};
struct Fiber {
    ucontext_t start;
    jmp_buf resume;
    bool started, done;
    dim3 index;
};
struct Warp {
    Barrier barrier;
    uint64_t slots[32];
};

struct Device {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<char*> stacks;
    std::vector<unsigned char> shared;
    Barrier barrier;
    jmp_buf scheduler;
    unsigned current = 0, threads = 0;
    uint64_t events = 0;  // barriers passed and threads ended: without any, a turn is a deadlock
    bool backwards = false;
    void (*thread)(void*) = nullptr;
    void* context = nullptr;
};
Device device;

void fiber_main() {
    device.thread(device.context);
    device.fibers[device.current].done = true;
    ++device.events;
    _longjmp(device.scheduler, 1);
}

void yield() {
    if (_setjmp(device.fibers[device.current].resume) == 0) _longjmp(device.scheduler, 1);
}

void wait(Barrier& barrier, unsigned expected) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == expected) {
        barrier.arrived = 0;
        ++barrier.generation;
        ++device.events;
    }
    while (barrier.generation == generation) yield();
}

void resume(unsigned i) {
    Fiber& fiber = device.fibers[i];
    device.current = i;
    threadIdx = fiber.index;
    if (_setjmp(device.scheduler) != 0) return;
    if (fiber.started) _longjmp(fiber.resume, 1);
    fiber.started = true;
    setcontext(&fiber.start);
}

void prepare_block() {
    device.barrier = {};
    for (Warp& warp : device.warps) warp.barrier = {};
    for (unsigned i = 0; i < device.threads; ++i) {
        Fiber& fiber = device.fibers[i];
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = device.stacks[i];
        fiber.start.uc_stack.ss_size = stack_bytes;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, fiber_main, 0);
        fiber.started = fiber.done = false;
        fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    }
}

void run_block() {
    prepare_block();
    for (unsigned left = device.threads; left;) {
        const uint64_t before = device.events;
        for (unsigned k = 0; k < device.threads; ++k) {
            const unsigned i = device.backwards ? device.threads - 1 - k : k;
            if (device.fibers[i].done) continue;
            resume(i);
            left -= device.fibers[i].done;
        }
        if (device.events == before) {
            std::fprintf(stderr,
                         "emulated CUDA: %u threads wait at a barrier that others never "
                         "reach\n",
                         left);
            std::abort();
        }
        device.backwards = !device.backwards;
    }
}

std::map<std::string, KernelFn>& kernels() {
    static std::map<std::string, KernelFn> map;
    return map;
}

}  // namespace

void block_barrier() { wait(device.barrier, device.threads); }
void warp_barrier() { wait(device.warps[device.current / 32].barrier, 32); }
void* shared_memory() { return device.shared.data(); }
uint64_t* warp_slots() { return device.warps[device.current / 32].slots; }

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(void*), void* context) {
    gridDim = grid, blockDim = block;
    device.threads = block.x * block.y * block.z;
    device.thread = thread, device.context = context;
    device.fibers.resize(device.threads);
    device.warps.resize((device.threads + 31) / 32);
    while (device.stacks.size() < device.threads) {
        void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        device.stacks.push_back(static_cast<char*>(stack));
    }
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                blockIdx = {x, y, z};
                device.shared.assign(shared_bytes + 16, 0xFF);  // NaN until it is written
                run_block();
            }
}

EmulatedRegistrar::EmulatedRegistrar(const char* name, const char*, const char*, size_t,
                                     KernelFn fn) {
    kernels()[name] = fn;
}

KernelFn emulated_kernel(const std::string& name) {
    const auto it = kernels().find(name);
    return it == kernels().end() ? nullptr : it->second;
}

}  // namespace nn::test
