// Host memory for tiles: an arena behind StarPU's allocation hooks. Freed blocks are kept by size
// class and given out again, because a fresh page costs more to fault in than most kernels cost to
// run. Also the byte budget.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace nn {

struct MemoryInfo {
    int64_t budget;   // bytes that tiles may take in host memory
    int64_t in_use;   // bytes that StarPU holds now
    int64_t cached;   // bytes free in the arena
    int64_t peak;     // largest in_use since the last reset_peak()
    int64_t tensors;  // logical bytes of all tiles that exist, whether written yet or not
};

void* arena_allocate(size_t bytes);  // 64-byte aligned; nullptr when the machine has no more
void arena_free(void* block, size_t bytes);
size_t arena_bytes(size_t bytes);  // what a block of so many takes
void arena_trim();                 // returns every cached block to the system

// Blocks for what waits for a disk, from the arena but outside of what tiles have in use: nullptr
// where tiles, as many as there ever were, would not fit beside it into the budget.
void* staging_allocate(size_t bytes, bool needed);  // needed: whatever the budget
void staging_free(void* block, size_t bytes);

// How memory is made known to GPUs, so that it can be copied while they work. Pinning costs about
// as much as copying, so it happens once for what the arena keeps; where it fails, memory is used
// as it is. To be set while no block is in use.
struct Pinning {
    bool (*pin)(void* block, size_t bytes) = nullptr;
    void (*unpin)(void* block) = nullptr;
};
void set_pinning(const Pinning& pinning);

bool has_memory(int64_t bytes);  // whether so many more bytes of tensors are within the budget
[[noreturn]] void out_of_memory(int64_t bytes, const std::string& what);
void set_budget(int64_t bytes);  // 0: what the machine can spare (see default_budget)
int64_t default_budget();  // 90 % of the memory available now, within the control groups' limits
MemoryInfo memory_info();
void reset_peak();
void count_tensor_bytes(int64_t delta);

}  // namespace nn
