// Failures on purpose: NNLUA_FAIL_KERNEL=name:n, or name:n:status:k for its k-th status; and
// stalls, name:n:hang or name:n:seconds. Calls are counted over all workers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/kernel.h"

namespace nn {
namespace {

struct Plan {
    std::string kernel;
    long call = 0;        // 0: none
    double seconds = -1;  // how long the call stalls instead of failing; -1: it fails
    long status = 1;      // which of the call's statuses is a failure
};

// The part behind the second colon; false where it is none.
bool parse_kind(const char* text, Plan* plan) {
    char* end = nullptr;
    if (std::strcmp(text, "hang") == 0) {
        plan->seconds = HUGE_VAL;
        return true;
    }
    if (std::strncmp(text, "status:", 7) == 0) {
        plan->status = std::strtol(text + 7, &end, 10);
        return plan->status >= 1 && !*end;
    }
    plan->seconds = std::strtod(text, &end);
    return plan->seconds >= 0 && end != text && !*end;
}

Plan parse(const char* text) {
    if (!text || !*text) return {};
    const char* colon = std::strchr(text, ':');
    Plan plan;
    plan.kernel = colon ? std::string(text, colon) : text;
    plan.call = colon ? std::atol(colon + 1) : 1;
    const char* kind = colon ? std::strchr(colon + 1, ':') : nullptr;
    if (plan.call < 1 || !find_kernel(plan.kernel) || (kind && !parse_kind(kind + 1, &plan)))
        throw std::runtime_error("NNLUA_FAIL_KERNEL is '" + std::string(text) +
                                 "'; the name of a kernel and which call, like gemm:3, is needed, "
                                 "for a stall with :hang or :SECONDS behind");
    return plan;
}

Plan& plan() {
    static Plan planned = parse(std::getenv("NNLUA_FAIL_KERNEL"));
    return planned;
}

std::atomic<long> calls{0};
thread_local long due = 0;  // the failure is the status asked for after so many

}  // namespace

void plan_failure(const char* text) {
    plan() = parse(text);
    calls = 0;
}

void announce_call(const char* kernel) {
    const Plan& planned = plan();
    const bool now = planned.call > 0 && planned.kernel == kernel && ++calls == planned.call;
    due = now && planned.seconds < 0 ? planned.status : 0;
    if (!now || planned.seconds < 0) return;
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - start).count() < planned.seconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

bool take_failure() { return due > 0 && --due == 0; }

}  // namespace nn
