#include "bindings/mapped_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace nn {
namespace {

// The handler may read an entry at any time: `first` is set last and cleared first.
struct Mapping {
    std::atomic<uintptr_t> first{0}, last{0};
    std::atomic<bool> damaged{false};
};
constexpr size_t most_mappings = 65536;  // of a process, by Linux's default (vm.max_map_count)
Mapping mappings[most_mappings];
std::atomic<size_t> used{0};  // entries before this one were in use at some time
uintptr_t page_bytes = 4096;

Mapping* find(uintptr_t first) {
    for (size_t i = 0; i < used; i++)
        if (mappings[i].first == first) return &mappings[i];
    return nullptr;
}

// A free entry, or null.
Mapping* free_entry() {
    Mapping* const m = find(0);
    if (m || used == most_mappings) return m;
    return &mappings[used++];
}

// Replaces the pages from the address to the end of its mapping by zeros.
bool replace_rest(uintptr_t address) {
    for (size_t i = 0; i < used; i++) {
        Mapping& m = mappings[i];
        if (!m.first || address < m.first || address >= m.last) continue;
        const uintptr_t page = address / page_bytes * page_bytes;
        void* const at = reinterpret_cast<void*>(page);
        constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(at, m.last - page, PROT_READ, flags, -1, 0) == MAP_FAILED) return false;
        m.damaged = true;
        return true;
    }
    return false;
}

void on_bus(int signal, siginfo_t* info, void*) {
    const bool is_fault = info->si_code > 0;  // else a process sent the signal
    if (is_fault && replace_rest(reinterpret_cast<uintptr_t>(info->si_addr))) return;
    std::signal(signal, SIG_DFL);
    raise(signal);
}

}  // namespace

void install_bus_handler() {
    page_bytes = uintptr_t(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, nullptr);
}

void watch_mapping(uintptr_t first, size_t bytes) {
    Mapping* const m = free_entry();
    if (!m) return;
    m->damaged = false;
    m->last = first + (bytes + page_bytes - 1) / page_bytes * page_bytes;
    m->first = first;
}

void unwatch_mapping(uintptr_t first) {
    if (Mapping* const m = find(first)) m->first = 0;
}

bool mapping_is_damaged(uintptr_t first) {
    const Mapping* const m = find(first);
    return m && m->damaged;
}

}  // namespace nn
