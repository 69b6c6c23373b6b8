// Host memory for tiles: an arena behind StarPU's allocation hooks. Freed blocks are kept by size
// class and reused, because page faults on new memory take longer than most kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace nn {

struct ArenaInfo {
    int64_t in_use;  // bytes that tiles hold now
    int64_t cached;  // bytes free in the arena
    int64_t peak;    // largest in_use since the last reset_peak()
};

void* arena_allocate(size_t bytes);  // 64-byte aligned; nullptr if the system has no memory
void arena_free(void* block, size_t bytes);
// The block that StarPU gets without GPUs if the system refuses memory; nothing reads or writes it.
// Its task fails with no_memory_for() (workers/worker.cc). Without it, StarPU would repeat the
// allocation forever. With GPUs, the watchdog reports such repetitions after 10 seconds.
void* refused_block();
int64_t arena_failures();                 // how often the system had no memory
std::string no_memory_for(size_t bytes);  // the message of that error
inline bool is_refused(const void* block) { return block == refused_block(); }
size_t arena_bytes(size_t bytes);  // size of the block for this many bytes
void arena_trim();                 // returns every cached block to the system

// Blocks for data to be written to disk, counted apart from tiles. nullptr if the block exceeds the
// budget above the peak of the tiles, unless it is `needed`.
void* staging_allocate(size_t bytes, bool needed);
void staging_free(void* block, size_t bytes);

// Functions that pin memory, so that GPUs copy it while they compute. Pinning takes about as long
// as copying, so the arena pins a block once and keeps it; if pinning fails, the block is used
// unpinned. Set them while no block is in use.
struct Pinning {
    bool (*pin)(void* block, size_t bytes) = nullptr;
    void (*unpin)(void* block) = nullptr;
};
void set_pinning(const Pinning& pinning);

void count_outside(int64_t bytes);  // memory for tiles that the arena did not allocate; may be < 0
ArenaInfo arena_info();
int64_t arena_taken();  // bytes of all blocks, which the system counts as used
void reset_peak();

}  // namespace nn
