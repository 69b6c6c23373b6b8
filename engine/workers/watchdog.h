// Detects hung tasks: workers record the tasks that they run, and a wait fails if for
// NNLUA_WATCHDOG seconds a task does not end, or none runs although some are submitted. It also
// fails if an allocation failed and no task has run for 10 seconds since (with GPUs), or if a GPU
// fails in a way after which StarPU cannot use it.
#pragma once
#include <string>

namespace nn {

struct TaskArg;

// On a worker's thread. Number 0 is the task that the thread itself runs, the others are tasks in
// flight on its GPU. watch_ends() without watch_begins() does nothing.
constexpr int watched_tasks = 17;
void watch_begins(const TaskArg& arg, int number);
void watch_ends(int number);
struct Watched {  // a task that the calling worker's thread runs
    explicit Watched(const TaskArg& arg) { watch_begins(arg, 0); }
    ~Watched() { watch_ends(0); }
    Watched(const Watched&) = delete;
};

// On the thread that found such a failure of a GPU; never returns. The next wait or submission of
// the main thread raises an error. If the main thread does not do so within 5 seconds (it is inside
// StarPU, or runs a long function), or if StarPU starts or stops, the process prints the error and
// exits. what: "unspecified launch failure (...)".
[[noreturn]] void lose_gpu(const std::string& what);
bool gpu_is_lost();
[[noreturn]] void raise_lost_gpu();

void check_for_hangs();  // by the main thread while it waits; throws if a task hangs
bool hangs();            // whether the last check_for_hangs() threw
void start_watchdog();   // reads NNLUA_WATCHDOG; throws if that is not a number

}  // namespace nn
