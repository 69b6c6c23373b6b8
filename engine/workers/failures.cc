#include "engine/workers/failures.h"

#include <starpu.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/graph/task.h"

namespace nn {
namespace {

struct Failures {
    std::mutex mutex;
    std::unordered_map<StarpuHandle, bool> handles;  // true: a transfer lost the value
    std::string error;
    std::atomic<bool> any{false}, has_error{false};
    std::atomic<int64_t> tasks{0};
};
// Never destroyed: tasks may outlive everything else.
Failures& failures() {
    static auto* const instance = new Failures;
    return *instance;
}

// A task of many handles keeps them outside of its own arrays.
int mode_of(const starpu_task* t, int i) { return int(STARPU_TASK_GET_MODE(t, i)); }
StarpuHandle handle_of(const starpu_task* t, int i) { return STARPU_TASK_GET_HANDLE(t, i); }

void note_failure(bool keeps_value) {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (mode_of(t, i) == STARPU_W || (mode_of(t, i) == STARPU_RW && !keeps_value))
            failures().handles.emplace(handle_of(t, i), false);
    failures().any = true;
}

// A new value replaces a failed one.
void note_success() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (mode_of(t, i) == STARPU_W) failures().handles.erase(handle_of(t, i));
}

}  // namespace

bool needs_failed_value() {
    if (!failures().any) return false;
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (mode_of(t, i) != STARPU_W && failures().handles.count(handle_of(t, i))) return true;
    return false;
}

// Whether a skipped task that changes tiles in place leaves old values with which the next step may
// compute: if the error was in the forward pass, no task changes any parameter. If the disk lost a
// gradient or a moment, other tasks have changed their parameters.
static bool keeps_values() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i) {
        const auto found = failures().handles.find(handle_of(t, i));
        if (mode_of(t, i) == STARPU_W || found == failures().handles.end()) continue;
        if (found->second || mode_of(t, i) == STARPU_RW) return false;
    }
    return true;
}

void note_skipped(const TaskArg& arg) {
    note_failure(arg.in_place && keeps_values());
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

void note_transfer_skipped(StarpuHandle from, StarpuHandle to) {
    std::lock_guard lock(failures().mutex);
    const auto found = failures().handles.find(from);
    failures().handles[to] = found == failures().handles.end() || found->second;
    failures().any = true;
    ++failures().tasks;
}

void note_transfer(StarpuHandle to, const std::string& error) {
    if (error.empty() && !failures().any) return;
    std::lock_guard lock(failures().mutex);
    if (error.empty()) {
        failures().handles.erase(to);
        return;
    }
    failures().handles[to] = true;
    failures().any = true;
    if (!failures().has_error.exchange(true)) failures().error = error;
    ++failures().tasks;  // last, as in note_result
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
        for (const auto& [handle, lost] : f.handles) handles.insert(handle);
        f.handles.clear();
        f.any = false;
    }
    mark_failed(handles);
}

}  // namespace nn
