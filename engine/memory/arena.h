// Host memory for tiles: an arena behind StarPU's allocation hooks. Freed blocks are kept by size
// class and given out again, because a fresh page costs more to fault in than most kernels cost to
// run.
#pragma once
#include <cstddef>
#include <cstdint>

namespace nn {

struct ArenaInfo {
    int64_t in_use;  // bytes that tiles hold now
    int64_t cached;  // bytes free in the arena
    int64_t peak;    // largest in_use since the last reset_peak()
};

void* arena_allocate(size_t bytes);  // 64-byte aligned; nullptr when the machine has no more
void arena_free(void* block, size_t bytes);
size_t arena_bytes(size_t bytes);  // size of the block for this many bytes
void arena_trim();                 // returns every cached block to the system

// Blocks for data on its way to a disk, counted apart from tiles. nullptr where the block and the
// peak of the tiles together exceed the budget, unless it is needed whatever the budget.
void* staging_allocate(size_t bytes, bool needed);
void staging_free(void* block, size_t bytes);

// How memory is pinned, so that GPUs copy it while they compute. Pinning costs about as much as
// copying, so the arena pins a block once and keeps it; where pinning fails, the block is used
// unpinned. Set it while no block is in use.
struct Pinning {
    bool (*pin)(void* block, size_t bytes) = nullptr;
    void (*unpin)(void* block) = nullptr;
};
void set_pinning(const Pinning& pinning);

ArenaInfo arena_info();
void reset_peak();

}  // namespace nn
