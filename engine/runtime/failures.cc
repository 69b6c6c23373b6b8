#include "engine/runtime/failures.h"

#include <starpu.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "engine/base/error.h"

namespace nn {
namespace {

struct Failures {
    std::mutex mutex;
    std::unordered_set<StarpuHandle> handles;
    std::string error;
    std::atomic<bool> any{false}, has_error{false};
    std::atomic<int64_t> tasks{0};
};
// Never destroyed: tasks may outlive everything else.
Failures& failures() {
    static auto* const instance = new Failures;
    return *instance;
}

void note_failure(bool keeps_value) {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] == STARPU_W || (t->modes[i] == STARPU_RW && !keeps_value))
            failures().handles.insert(t->handles[i]);
    failures().any = true;
}

// A new value replaces a failed one.
void note_success() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] == STARPU_W) failures().handles.erase(t->handles[i]);
}

}  // namespace

bool needs_failed_value() {
    if (!failures().any) return false;
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] != STARPU_W && failures().handles.count(t->handles[i])) return true;
    return false;
}

void note_skipped(const TaskArg& arg) {
    note_failure(arg.in_place);
    ++failures().tasks;
}

void note_result(const TaskArg& arg, const std::string& error) {
    if (error.empty()) {
        if (failures().any) note_success();
        return;
    }
    note_failure(false);
    const Dims extent(arg.extent, arg.extent + arg.rank);
    std::lock_guard lock(failures().mutex);
    if (!failures().has_error.exchange(true))
        failures().error = format("%s: %s (%s)", arg.op, error.c_str(),
                                  description_of(*arg.kernel, arg.dtype, arg.tile, extent).c_str());
    ++failures().tasks;  // last: a thread that reads this count also sees the error
}

bool has_failed_value(StarpuHandle handle) {
    if (!failures().any) return false;
    std::lock_guard lock(failures().mutex);
    return failures().handles.count(handle) > 0;
}

int64_t failed_tasks() { return failures().tasks; }

bool has_error() { return failures().has_error; }

std::string take_error() {
    std::lock_guard lock(failures().mutex);
    failures().has_error = false;
    return std::exchange(failures().error, "");
}

void mark_failed_tiles() {
    Failures& f = failures();
    std::unordered_set<StarpuHandle> handles;
    {
        std::lock_guard lock(f.mutex);
        handles.swap(f.handles);
        f.any = false;
    }
    mark_failed(handles);
}

}  // namespace nn
