// Failures on purpose: NNLUA_FAIL_KERNEL=name:n. Calls are counted over all workers.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/kernel.h"

namespace nn {
namespace {

struct Plan {
    std::string kernel;
    long call = 0;
};

// Without a number it is the first call.
Plan read_plan() {
    const char* text = std::getenv("NNLUA_FAIL_KERNEL");
    if (!text || !*text) return {};
    const char* colon = std::strchr(text, ':');
    if (!colon) return {text, 1};
    return {std::string(text, colon), std::atol(colon + 1)};
}

std::atomic<long> calls{0};
thread_local bool due = false;

}  // namespace

bool announce_call(const char* kernel) {
    static const Plan plan = read_plan();
    due = plan.call > 0 && plan.kernel == kernel && ++calls == plan.call;
    return due;
}

bool take_failure() {
    const bool was_due = due;
    due = false;
    return was_due;
}

}  // namespace nn
