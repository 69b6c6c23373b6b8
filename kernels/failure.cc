// Failures on purpose: NNLUA_FAIL_KERNEL=name:n. Calls are counted over all workers.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/kernel.h"

namespace nn {
namespace {

struct Plan {
    std::string kernel;
    long call = 0;  // 0: none
};

Plan parse(const char* text) {
    if (!text || !*text) return {};
    const char* colon = std::strchr(text, ':');
    const std::string kernel = colon ? std::string(text, colon) : text;
    const long call = colon ? std::atol(colon + 1) : 1;
    if (call < 1 || !find_kernel(kernel))
        throw std::runtime_error("NNLUA_FAIL_KERNEL is '" + std::string(text) +
                                 "'; the name of a kernel and which call, like gemm:3, is needed");
    return {kernel, call};
}

Plan& plan() {
    static Plan planned = parse(std::getenv("NNLUA_FAIL_KERNEL"));
    return planned;
}

std::atomic<long> calls{0};
thread_local bool due = false;

}  // namespace

void plan_failure(const char* text) {
    plan() = parse(text);
    calls = 0;
}

void announce_call(const char* kernel) {
    const Plan& planned = plan();
    due = planned.call > 0 && planned.kernel == kernel && ++calls == planned.call;
}

bool take_failure() {
    const bool was_due = due;
    due = false;
    return was_due;
}

}  // namespace nn
