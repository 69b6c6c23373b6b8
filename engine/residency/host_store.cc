#include "engine/residency/host_store.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/memory/arena.h"
#include "engine/workers/gpu.h"

namespace nn {
namespace {

// The second thread begins a copy while the first one waits for the end of another.
constexpr int threads_per_link = 2;

char* block_at(int64_t place) { return reinterpret_cast<char*>(place); }

}  // namespace

HostStore::HostStore(int gpu, double bytes_per_second)
    : gpu_(gpu),
      queue_({"nnlua link", threads_per_link, bytes_per_second, true, false},
             [this](const Transfer& transfer) { return carry_out(transfer); }) {}

int64_t HostStore::allocate(int64_t bytes, const std::string& what) {
    void* const block = arena_allocate(size_t(bytes));
    if (!block) throw OutOfMemory("no RAM for " + what + ": " + no_memory_for(size_t(bytes)));
    allocated_ += bytes;
    return reinterpret_cast<int64_t>(block);
}

void HostStore::release(int64_t place, int64_t bytes) {
    arena_free(block_at(place), size_t(bytes));
    allocated_ -= bytes;
}

void HostStore::read(int64_t place, void* to, int64_t bytes, uint64_t order, TransferName what,
                     Transfer::Done done) {
    queue_.add(
        {false, place, bytes, static_cast<char*>(to), order, std::move(what), std::move(done)});
}

void HostStore::write(int64_t place, const void* from, int64_t bytes, uint64_t order,
                      TransferName what, Transfer::Done done) {
    queue_.add({true, place, bytes, const_cast<char*>(static_cast<const char*>(from)), order,
                std::move(what), std::move(done)});
}

std::string HostStore::carry_out(const Transfer& t) const {
    char* const block = block_at(t.place);
    const std::string error = t.writes
                                  ? copy_beside_kernels(gpu_, block, t.memory, size_t(t.bytes))
                                  : copy_beside_kernels(gpu_, t.memory, block, size_t(t.bytes));
    if (error.empty()) return "";
    return format("%s cannot be copied %s GPU %d: %s", t.what.text.c_str(),
                  t.writes ? "from" : "to", gpu_, error.c_str());
}

}  // namespace nn
