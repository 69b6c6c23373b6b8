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
Mapping mappings[4096];  // a SIGBUS in a mapping beyond these ends the program
uintptr_t page_bytes = 4096;

// The entry of a mapping; find(0) is a free one.
Mapping* find(uintptr_t first) {
    for (Mapping& m : mappings)
        if (m.first == first) return &m;
    return nullptr;
}

// Replaces the pages from the address to the end of its mapping by zeros.
bool replace_rest(uintptr_t address) {
    for (Mapping& m : mappings) {
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
    Mapping* const m = find(0);
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
