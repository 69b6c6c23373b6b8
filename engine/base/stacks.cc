#include "engine/base/stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace nn {
namespace {

constexpr int most_frames = 48;
constexpr double seconds_to_answer = 0.5, seconds_for_all = 5;

pid_t this_thread() { return pid_t(syscall(SYS_gettid)); }

// The stack of the thread that the signal interrupts. SIGTRAP is one of the signals that no thread
// blocks (engine/base/threads.h).
struct Stack {
    void* frames[most_frames];
    int count = 0;
    std::atomic<pid_t> wanted{0};  // the thread that must fill it, negative while it does; 0: none
};
Stack stack;

// The unwinder of GCC calls abort(), or reads anywhere, where it cannot follow a stack. The process
// shall still report, so such a signal ends the unwinding alone.
std::atomic<pid_t> unwinds{0};  // the thread that does
sigjmp_buf before_unwinding;
struct Crash {
    int signal;
    struct sigaction before;
} crashes[] = {{SIGABRT, {}}, {SIGSEGV, {}}, {SIGBUS, {}}};

void on_crash(int signal) {
    if (unwinds == this_thread()) siglongjmp(before_unwinding, 1);
    for (Crash& crash : crashes)
        if (crash.signal == signal) sigaction(signal, &crash.before, nullptr);
    raise(signal);  // arrives when this handler returns
}

// Into stack.frames, as far as they can be followed.
void unwind() {
    std::fill_n(stack.frames, most_frames, nullptr);
    unwinds = this_thread();
    if (sigsetjmp(before_unwinding, 1) == 0) backtrace(stack.frames, most_frames);
    unwinds = 0;
    stack.count = int(std::find(stack.frames, stack.frames + most_frames, nullptr) - stack.frames);
}

void fill_stack(int) {
    const int error = errno;
    const pid_t self = this_thread();
    pid_t wanted = self;
    if (stack.wanted.compare_exchange_strong(wanted, -self)) {  // else it was asked too long ago
        unwind();
        stack.wanted = 0;
    }
    errno = error;
}

// The handler stays: a thread may take the signal long after it was asked.
void prepare_signal() {
    static bool done = false;
    if (std::exchange(done, true)) return;
    void* first[1];
    backtrace(first, 1);  // loads what it needs, which a signal handler must not do
    struct sigaction action {};
    action.sa_handler = fill_stack;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTRAP, &action, nullptr);
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    for (Crash& crash : crashes) sigaction(crash.signal, &action, &crash.before);
}

std::string name_of_function(void* address) {
    Dl_info info{};
    if (!dladdr(address, &info) || !info.dli_fname) return format("%p", address);
    const std::string file = std::filesystem::path(info.dli_fname).filename();
    if (!info.dli_sname) {
        const auto offset = static_cast<char*>(address) - static_cast<char*>(info.dli_fbase);
        return format("%s+%#tx", file.c_str(), offset);
    }
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, nullptr), std::free);
    return (name ? name.get() : info.dli_sname) + (" in " + file);
}

std::string name_of_thread(const std::string& folder) {
    std::ifstream file(folder + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
}

// first: without the functions of the signal.
std::string lines_of_stack(int first) {
    std::string out;
    for (int i = first; i < stack.count; ++i) out += "\n    " + name_of_function(stack.frames[i]);
    return out;
}

std::string stack_of(pid_t thread, double end) {
    if (thread == this_thread()) {
        unwind();
        return lines_of_stack(2);
    }
    stack.wanted = thread;
    if (syscall(SYS_tgkill, getpid(), thread, SIGTRAP) != 0) return " has ended";
    while (stack.wanted != 0) {
        pid_t unanswered = thread;
        if (now_seconds() > end && stack.wanted.compare_exchange_strong(unanswered, 0))
            return " does not answer";
        usleep(200);
    }
    return lines_of_stack(3);
}

}  // namespace

std::string stacks_of_threads() {
    prepare_signal();
    const double end = now_seconds() + seconds_for_all;
    std::string out;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
        const std::string path = entry.path(), number = entry.path().filename();
        const double limit = std::min(now_seconds() + seconds_to_answer, end);
        out += format("%s  thread %s, %s:", out.empty() ? "" : "\n", number.c_str(),
                      name_of_thread(path).c_str()) +
               stack_of(std::atoi(number.c_str()), limit);
    }
    return out;
}

}  // namespace nn
