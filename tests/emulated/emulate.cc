// The scheduler of tests/emulated/cuda_runtime.h: fibers for the threads of a block.
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <vector>

#include "cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace nn::test {
namespace {

constexpr size_t stack_bytes = 128 << 10;

struct Barrier {
    unsigned arrived = 0, generation = 0;
};
struct Copy {
    void* to;
    const void* from;
};
struct Fiber {
    std::vector<std::vector<Copy>> copies;  // by group; the last group is incomplete
    ucontext_t start;
    jmp_buf resume;
    bool started, done;
    dim3 index;
    const Barrier* at;  // the barrier where it waits, in that barrier's generation
    unsigned generation;
    bool waits() const { return at && at->generation == generation; }
};
struct Warp {
    Barrier barrier;
    // Two sets in alternation, so that one barrier per exchange is enough.
    uint64_t exchange[2][32];
    uint32_t fragments[2][32][6];
};

struct Emulator {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<char*> stacks;
    std::vector<unsigned char> shared;
    Barrier barrier;
    jmp_buf scheduler;
    unsigned current = 0, threads = 0;
    uint64_t events = 0;  // barriers passed and threads ended; a round without any is a deadlock
    bool backwards = false;
    void (*thread)(void*) = nullptr;
    void* context = nullptr;
};
Emulator device;

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
    Fiber& fiber = device.fibers[device.current];
    fiber.at = &barrier, fiber.generation = barrier.generation;
    if (++barrier.arrived == expected) {
        barrier.arrived = 0;
        ++barrier.generation;
        ++device.events;
    }
    while (fiber.waits()) yield();
}

// The set of registers that a warp uses now; after two barriers it is free again.
unsigned current_set() { return device.warps[device.current / 32].barrier.generation % 2; }

__attribute__((noinline)) void resume(unsigned i) {
    Fiber& fiber = device.fibers[i];
    device.current = i;
    threadIdx = fiber.index;
    if (_setjmp(device.scheduler) != 0) return;
    if (fiber.started) _longjmp(fiber.resume, 1);
    fiber.started = true;
    setcontext(&fiber.start);
}

// Not inlined, like resume(): both return twice.
__attribute__((noinline)) void prepare_fiber(unsigned i) {
    Fiber& fiber = device.fibers[i];
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = device.stacks[i];
    fiber.start.uc_stack.ss_size = stack_bytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, fiber_main, 0);
    fiber.started = fiber.done = false;
    fiber.at = nullptr;
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
}

void prepare_block() {
    device.barrier = {};
    for (Warp& warp : device.warps) warp.barrier = {};
    for (unsigned i = 0; i < device.threads; ++i) {
        prepare_fiber(i);
        device.fibers[i].copies.assign(1, {});
    }
}

void run_block() {
    prepare_block();
    for (unsigned left = device.threads; left;) {
        const uint64_t before = device.events;
        for (unsigned k = 0; k < device.threads; ++k) {
            const unsigned i = device.backwards ? device.threads - 1 - k : k;
            if (device.fibers[i].done || device.fibers[i].waits()) continue;
            resume(i);
            left -= device.fibers[i].done;
        }
        if (device.events == before) {
            std::fprintf(stderr,
                         "emulated CUDA: %u threads wait at a barrier that others never reach\n",
                         left);
            std::abort();
        }
        device.backwards = !device.backwards;
    }
}

// Tests ask for it by name; the engine never chooses it.
[[maybe_unused]] const Target& emulated =
    add_target({"emulated", nn::Device::cuda, [] { return false; }});

}  // namespace

void block_barrier() { wait(device.barrier, device.threads); }
void warp_barrier() { wait(device.warps[device.current / 32].barrier, 32); }
void* shared_memory() { return device.shared.data(); }
uint64_t* exchange_registers() { return device.warps[device.current / 32].exchange[current_set()]; }

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
                device.shared.assign(shared_bytes + 16, 0xFF);  // NaN
                run_block();
            }
}

namespace {

// Element `half` (0 or 1) of a register that holds two bf16.
float element(uint32_t word, unsigned half) {
    const uint32_t bits = half ? word & 0xFFFF0000u : word << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

void need_multiple_of_16(const void* address, const char* what) {
    if (reinterpret_cast<uintptr_t>(address) % 16 == 0) return;
    std::fprintf(stderr, "emulated CUDA: %s at an address that is not a multiple of 16\n", what);
    std::abort();
}

}  // namespace

void async_copy(void* to, const void* from, bool valid) {
    need_multiple_of_16(to, "cp.async");
    need_multiple_of_16(from, "cp.async");
    device.fibers[device.current].copies.back().push_back({to, valid ? from : nullptr});
}
void async_commit() { device.fibers[device.current].copies.emplace_back(); }
void async_wait(unsigned pending) {
    auto& groups = device.fibers[device.current].copies;
    for (; groups.size() > 1 + pending; groups.erase(groups.begin()))
        for (const Copy& copy : groups[0]) {
            if (copy.from)
                std::memcpy(copy.to, copy.from, 16);
            else
                std::memset(copy.to, 0, 16);
        }
}

void emulated_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    auto& registers = device.warps[device.current / 32].fragments[current_set()];
    const unsigned me = lane(), g = me / 4, t = me % 4;
    uint32_t* mine = registers[me];
    std::copy(a, a + 4, mine);
    mine[4] = b0, mine[5] = b1;
    warp_barrier();
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = g + i / 2 * 8, column = 2 * t + i % 2;
        double sum = 0;
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned a_lane = row % 8 * 4 + k % 8 / 2, b_lane = column * 4 + k % 8 / 2;
            sum += double(element(registers[a_lane][row / 8 + k / 8 * 2], k % 2)) *
                   double(element(registers[b_lane][4 + k / 8], k % 2));
        }
        c[i] += float(sum);
    }
}

void emulated_ldmatrix(uint32_t (&r)[4], const void* row, bool transposed) {
    uint64_t* rows = exchange_registers();
    const unsigned me = lane(), g = me / 4, t = me % 4;
    need_multiple_of_16(row, "ldmatrix");
    rows[me] = reinterpret_cast<uintptr_t>(row);
    warp_barrier();
    for (unsigned block = 0; block < 4; ++block) {
        uint16_t two[2];
        for (unsigned k = 0; k < 2; ++k) {
            const unsigned i = transposed ? 2 * t + k : g, j = transposed ? g : 2 * t + k;
            two[k] = reinterpret_cast<const uint16_t*>(rows[8 * block + i])[j];
        }
        r[block] = uint32_t(two[0]) | uint32_t(two[1]) << 16;
    }
}

}  // namespace nn::test
