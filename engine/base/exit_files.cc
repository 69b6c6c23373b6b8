#include "engine/base/exit_files.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <vector>

namespace nn::exit_files {
namespace {

std::atomic_flag is_held;

// A handler that ran while its own thread holds the lock would wait for it forever, so no signal
// arrives then. Handlers may call all that this calls.
class Lock {
public:
    Lock() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
        while (is_held.test_and_set(std::memory_order_acquire)) sched_yield();
    }
    ~Lock() {
        is_held.clear(std::memory_order_release);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    Lock(const Lock&) = delete;

private:
    sigset_t before_{};
};

// With the lock. It exists before any handler runs, and is never destroyed.
std::vector<std::string>& paths = *new std::vector<std::string>;

void remove_paths() {
    for (auto path = paths.rbegin(); path != paths.rend(); ++path)
        if (unlink(path->c_str()) != 0) rmdir(path->c_str());
}

}  // namespace

void add(const std::string& path) {
    const Lock lock;
    paths.push_back(path);
}

void drop(const std::string& path) {
    const Lock lock;
    const auto last = std::find(paths.rbegin(), paths.rend(), path);
    if (last != paths.rend()) paths.erase(std::next(last).base());
}

void remove_all() {
    const Lock lock;
    remove_paths();
    paths.clear();
}

void end_process(int code) {
    const Lock lock;  // for good: the destructor is not reached
    remove_paths();
    _exit(code);
}

}  // namespace nn::exit_files
