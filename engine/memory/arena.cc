#include "engine/memory/arena.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/memory/admission.h"

namespace nn {
namespace {

constexpr size_t page = 4096, huge_page = size_t(2) << 20;

// Pinning works on pages, so smaller blocks are cut from slabs, which set_pinning() returns.
constexpr size_t min_pinned = size_t(64) << 10;

// Blocks of at least this size are mapped, because malloc keeps freed blocks of up to 32 MB.
constexpr size_t min_mapped = size_t(1) << 20;
constexpr size_t min_trimmed = size_t(16) << 20;  // freed bytes after which malloc returns pages

struct Arena {
    std::mutex mutex;
    std::map<size_t, std::vector<void*>> free;  // by size class
    Pinning pinning;
    std::set<void*> pinned;
    std::vector<void*> slabs;  // of a huge page each, for blocks below min_pinned
    size_t slab_used = huge_page;
    int64_t in_use = 0, cached = 0, staged = 0, peak = 0;
};

std::atomic<int64_t> failures{0};

// Never destroyed: tiles may be freed while the process ends.
Arena& arena() {
    static Arena* const instance = new Arena;
    return *instance;
}

void* map_pages(size_t bytes) {
    void* const mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
}

// Mapped pages; the size is a multiple of theirs. Linux maps downwards and merges neighbours, so an
// aligned block stays at the end of its mapping: a process can have only 65,530 separate ones.
void* map_block(size_t bytes, size_t alignment) {
    if (alignment <= page) return map_pages(bytes);
    char* const begin = static_cast<char*>(map_pages(bytes + alignment));
    if (!begin) return nullptr;
    const size_t before = alignment - uintptr_t(begin) % alignment;
    munmap(begin, before);
    if (before < alignment) munmap(begin + before + bytes, alignment - before);
    return begin + before;
}

using Lock = std::unique_lock<std::mutex>;

// A block from the system, pinned if the arena pins. Other threads can use the arena meanwhile:
// pinning takes about as long as writing the block.
void* system_block(Arena& a, Lock& lock, size_t bytes) {
    void* block = nullptr;
    const size_t alignment = bytes >= huge_page ? huge_page : a.pinning.pin ? page : 64;
    if (bytes >= min_mapped)
        block = map_block(bytes, alignment);
    else if (posix_memalign(&block, alignment, bytes) != 0)
        block = nullptr;
    if (!block) return nullptr;
    if (bytes >= huge_page) madvise(block, bytes, MADV_HUGEPAGE);
    if (!a.pinning.pin) return block;
    const auto pin = a.pinning.pin;
    lock.unlock();
    const bool is_pinned = pin(block, bytes);
    lock.lock();
    if (is_pinned) a.pinned.insert(block);
    return block;
}

void* from_slab(Arena& a, Lock& lock, size_t bytes) {
    if (a.slab_used + bytes > huge_page) {
        void* slab = system_block(a, lock, huge_page);
        if (!slab) return nullptr;
        a.slabs.push_back(slab);
        a.slab_used = 0;
    }
    void* block = static_cast<char*>(a.slabs.back()) + a.slab_used;
    a.slab_used += bytes;
    return block;
}

void* new_block(Arena& a, Lock& lock, size_t bytes) {
    return a.pinning.pin && bytes < min_pinned ? from_slab(a, lock, bytes)
                                               : system_block(a, lock, bytes);
}

void release(Arena& a, void* block, size_t bytes) {
    if (a.pinned.erase(block)) a.pinning.unpin(block);
    if (bytes >= min_mapped)
        munmap(block, bytes);
    else
        std::free(block);
}

void trim_locked(Arena& a) {
    size_t small = 0;
    for (auto& [bytes, blocks] : a.free) {
        if (a.pinning.pin && bytes < min_pinned) continue;
        for (void* block : blocks) release(a, block, bytes);
        a.cached -= int64_t(bytes * blocks.size());
        if (bytes < min_mapped) small += bytes * blocks.size();
        blocks.clear();
    }
    if (small > min_trimmed) malloc_trim(0);
}

void* block_locked(Arena& a, Lock& lock, size_t rounded) {
    auto it = a.free.find(rounded);
    if (it != a.free.end() && !it->second.empty()) {
        void* block = it->second.back();
        it->second.pop_back();
        a.cached -= int64_t(rounded);
        return block;
    }
    // Cached blocks of other sizes count too: return them before the machine swaps.
    const int64_t taken = a.in_use + a.staged + a.cached;
    if (taken + int64_t(rounded) > budget()) trim_locked(a);
    if (void* block = new_block(a, lock, rounded)) return block;
    trim_locked(a);
    return new_block(a, lock, rounded);
}

}  // namespace

// Sizes are rounded up by at most an eighth, so that tiles of nearly the same size share blocks.
size_t arena_bytes(size_t bytes) {
    if (bytes <= 4096) return std::max<size_t>(64, (bytes + 63) / 64 * 64);
    size_t step = 512;
    while (step * 16 <= bytes) step *= 2;
    if (bytes >= huge_page) step = std::max(step, size_t(64) << 10);
    return (bytes + step - 1) / step * step;
}

static void keep(void* block, size_t bytes, int64_t Arena::*counted_as) {
    const size_t rounded = arena_bytes(bytes);
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    a.free[rounded].push_back(block);
    a.*counted_as -= int64_t(rounded);
    a.cached += int64_t(rounded);
}

void* arena_allocate(size_t bytes) {
    const size_t rounded = arena_bytes(bytes);
    Arena& a = arena();
    Lock lock(a.mutex);
    void* block = block_locked(a, lock, rounded);
    if (!block) {
        ++failures;
        return nullptr;
    }
    a.in_use += int64_t(rounded);
    a.peak = std::max(a.peak, a.in_use);
    return block;
}

void arena_free(void* block, size_t bytes) {
    if (!is_refused(block)) keep(block, bytes, &Arena::in_use);
}

std::string no_memory_for(size_t bytes) {
    return format("out of memory: the system cannot allocate %s",
                  human_bytes(double(bytes)).c_str()) +
           "; set a smaller nn.memory_budget(); nnlua --health shows the limits of the process";
}

int64_t arena_failures() { return failures; }

void* refused_block() {
    alignas(64) static char block[64];
    return block;
}

void* staging_allocate(size_t bytes, bool needed) {
    const auto rounded = int64_t(arena_bytes(bytes));
    Arena& a = arena();
    Lock lock(a.mutex);
    if (!needed && a.peak + a.staged + rounded > budget()) return nullptr;
    void* block = block_locked(a, lock, size_t(rounded));
    if (block) a.staged += rounded;
    return block;
}

void staging_free(void* block, size_t bytes) { keep(block, bytes, &Arena::staged); }

void arena_trim() {
    std::lock_guard lock(arena().mutex);
    trim_locked(arena());
}

void set_pinning(const Pinning& pinning) {
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    trim_locked(a);
    a.free.clear();
    a.cached = 0;
    for (void* slab : a.slabs) release(a, slab, huge_page);
    a.slabs.clear();
    a.slab_used = huge_page;
    a.pinning = pinning;
}

void count_outside(int64_t bytes) {
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    a.in_use += bytes;
    a.peak = std::max(a.peak, a.in_use);
}

ArenaInfo arena_info() {
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    return {a.in_use, a.cached, a.peak};
}

int64_t arena_taken() {
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    return a.in_use + a.staged + a.cached;
}

void reset_peak() {
    std::lock_guard lock(arena().mutex);
    arena().peak = arena().in_use;
}

}  // namespace nn
