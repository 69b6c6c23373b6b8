#include "engine/memory/memory_uses.h"

#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace nn::memory_uses {
namespace {

struct Use {
    const void* user;
    const char* memory;
    size_t bytes;
    bool writes;
    std::string what, problem;
};
struct State {
    std::mutex mutex;
    std::vector<Use> uses;
};
// Never destroyed: transfers may outlive everything else.
State& state() {
    static auto* const instance = new State;
    return *instance;
}

bool meet(const Use& a, const Use& b) {
    return a.user != b.user && (a.writes || b.writes) && a.memory < b.memory + b.bytes &&
           b.memory < a.memory + a.bytes;
}

std::string problem_of(const Use& first, const Use& second) {
    return format("%s began before %s had ended, and %s the same memory", second.what.c_str(),
                  first.what.c_str(), second.writes ? "writes" : "reads");
}

}  // namespace

void begin(const void* user, const void* memory, size_t bytes, bool writes, std::string what) {
    if (bytes == 0) return;
    Use use{user, static_cast<const char*>(memory), bytes, writes, std::move(what), ""};
    const std::lock_guard lock(state().mutex);
    for (Use& other : state().uses)
        if (meet(use, other)) use.problem = other.problem = problem_of(other, use);
    state().uses.push_back(std::move(use));
}

std::string end(const void* user) {
    if (!checks_tiles) return "";
    std::string problem;
    const std::lock_guard lock(state().mutex);
    std::erase_if(state().uses, [&](const Use& use) {
        if (use.user == user && !use.problem.empty()) problem = use.problem;
        return use.user == user;
    });
    return problem;
}

}  // namespace nn::memory_uses
