// One record per task, created at submission and completed by the thread that handles the task,
// without locks; only the submitting thread allocates. profile/sums.h derives sums, idle times and
// dependencies from the records. Submitting thread only, unless a comment says otherwise.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/clock.h"
#include "engine/memory/transfer_log.h"
#include "engine/tile/shape.h"
#include "kernels/kernel.h"

struct starpu_task;

namespace nn {

struct Task;
struct TaskArg;

// Times are microseconds of CLOCK_MONOTONIC, the clock of nn.now(); 0: not yet.
struct alignas(64) TaskRecord {
    const Kernel* kernel;  // null for a worker that waits in a team (kernels/team.h)
    const char *op, *layer;
    const char* library;  // that was chosen for a product's shape, or ""
    float flops, bytes;
    uint32_t run, index;    // run of a program, from 1, and the task's index in it; 0: eager
    uint64_t first_access;  // of its tiles, in Profile::accesses
    uint8_t accesses;
    Dtype dtype;
    bool skipped;                          // because a task that it depends on failed
    int16_t worker;                        // StarPU's number
    int32_t tile, rank, extent[max_dims];  // which tile of the op's result, and its extents
    double submitted, ready;               // ready: all its dependencies have ended
    double popped, launched;               // a worker took it; its data are in place
    double start, end;                     // of the kernel; on a CPU launched = start
    const char* name() const { return kernel ? kernel->name.c_str() : op; }
};

// What the submitting thread did.
struct SpanRecord {
    const char *what, *op;  // "submit" or "wait"; op: of an eager submission
    int64_t tasks;          // that were submitted
    double start, end;
};

// All records of a profile.
struct Profile {
    static constexpr int64_t chunk = 1024;
    std::vector<std::unique_ptr<TaskRecord[]>> chunks;  // records never move
    std::vector<uint64_t> accesses;                     // 2 * the tile's number + (written)
    std::vector<SpanRecord> spans;
    std::vector<TransferRecord> transfers;  // set when the profile stops
    int64_t count = 0, limit = 0, lost = 0;
    double begin = 0, end = 0;
    uint32_t runs = 0, run_tasks = 0;
    bool in_run = false;

    TaskRecord& record(int64_t i) { return chunks[size_t(i / chunk)][size_t(i % chunk)]; }
};
Profile& profile();

constexpr int64_t default_profile_limit = int64_t(1) << 20;  // records, of 192 bytes each
// Clears the records and, if `on`, starts a profile of at most `limit` tasks: later ones are only
// counted, and the profile's time ends at the first of them. No task may be in flight.
void enable_profile(bool on, int64_t limit = default_profile_limit);
void stop_profile();  // the records stay; no task may be in flight

extern std::atomic<bool> profile_on;
inline bool profiling() { return profile_on.load(std::memory_order_relaxed); }

// --- Recording ---

// Creates a task's record unless the limit is reached. StarPU's callbacks set the times at which
// the task is ready and popped.
void record_task(const Task& task, starpu_task* t);
void record_team_member(starpu_task* t);
void withdraw_record(starpu_task* t);  // its submission failed
// The record of the task that the calling worker runs; null if it has none. On any thread.
TaskRecord* current_record();

// The time of a kernel on a CPU worker; on a GPU, events measure it (`on` is false). On any thread.
class KernelTimer {
public:
    explicit KernelTimer(bool on = true);
    ~KernelTimer() {
        if (record_) record_->end = now_us();
    }
    KernelTimer(const KernelTimer&) = delete;

private:
    TaskRecord* const record_;
};

// Records what the submitting thread does while the object exists. Of nested submissions only the
// outer one is recorded.
class ProfileSpan {
public:
    enum Kind { submit, wait };
    // first: a task of the submitted op; null for a program or a wait.
    explicit ProfileSpan(Kind kind, const TaskArg* first = nullptr) : on_(profiling()) {
        if (on_) begin(kind, first);
    }
    ~ProfileSpan() {
        if (on_) end();
    }
    ProfileSpan(const ProfileSpan&) = delete;

private:
    void begin(Kind kind, const TaskArg* first);
    void end();
    SpanRecord span_;
    Kind kind_;
    bool on_;
};
// While one exists, recorded tasks belong to a new run of a program.
struct ProfileRun {
    ProfileRun() { profile().in_run = true, profile().run_tasks = 0, ++profile().runs; }
    ~ProfileRun() { profile().in_run = false; }
    ProfileRun(const ProfileRun&) = delete;
};

}  // namespace nn
