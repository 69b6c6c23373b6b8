#include "engine/base/waiting.h"

#include <cstdlib>
#include <mutex>
#include <utility>

#include "engine/base/error.h"

namespace nn {
namespace {

// Never destroyed: threads that run to the end may read it.
struct Wait {
    std::mutex mutex;
    std::string what;
};
Wait& wait() {
    static auto* const instance = new Wait;
    return *instance;
}

std::string exchange_wait(std::string what) {
    const std::lock_guard lock(wait().mutex);
    return std::exchange(wait().what, std::move(what));
}

}  // namespace

Waiting::Waiting(const std::string& what) : before_(exchange_wait(what)) {}
Waiting::~Waiting() { exchange_wait(std::move(before_)); }

std::string main_thread_waits_for() {
    const std::lock_guard lock(wait().mutex);
    return wait().what;
}

double watchdog_limit() {
    constexpr double by_default = 600;
    const char* const text = std::getenv("NNLUA_WATCHDOG");
    if (!text || !*text) return by_default;
    char* end = nullptr;
    const double limit = std::strtod(text, &end);
    if (*end || !(limit >= 0))
        fail("NNLUA_WATCHDOG is '%s'; a number of seconds is needed, 0 for no watchdog", text);
    return limit;
}

}  // namespace nn
