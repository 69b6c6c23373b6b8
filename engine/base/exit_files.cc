#include "engine/base/exit_files.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <list>

namespace nn::exit_files {
namespace {

using Paths = std::list<std::string>;

std::atomic_flag is_held;

// A handler waits for the thread that holds the lock. So that thread gets no signal, and allocates
// and frees nothing: the handler may have interrupted malloc(). All calls are async-signal-safe.
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

// With the lock. The list exists before any handler runs, and is never destroyed.
Paths& list = *new Paths;
const pid_t owner = getpid();

void remove_files() {
    for (auto path = list.rbegin(); path != list.rend(); ++path)
        if (unlink(path->c_str()) != 0) rmdir(path->c_str());
}

std::string absolute(const std::string& path) {
    std::error_code ignored;
    const auto out = std::filesystem::absolute(path, ignored);
    return out.empty() ? path : out.native();
}

}  // namespace

void add(const std::string& path) {
    Paths added{absolute(path)};
    const Lock lock;
    list.splice(list.end(), added);
}

void drop(const std::vector<std::string>& paths) {
    std::vector<std::string> wanted;
    for (const std::string& path : paths) wanted.push_back(absolute(path));
    Paths dropped;
    const Lock lock;
    for (const std::string& path : wanted) {
        const auto last = std::find(list.rbegin(), list.rend(), path);
        if (last != list.rend()) dropped.splice(dropped.end(), list, std::next(last).base());
    }
}

void remove_all() {
    Paths removed;
    const Lock lock;
    if (getpid() == owner) remove_files();
    removed.swap(list);
}

void end_process(int code) {
    if (getpid() != owner) _exit(code);
    const Lock lock;  // for good: the destructor is not reached
    remove_files();
    _exit(code);
}

}  // namespace nn::exit_files
