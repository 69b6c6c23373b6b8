// Where time goes: one record for each task, made where it is submitted and filled in by whichever
// thread has the task at the time, so that nobody waits for anybody: no lock, and no allocation
// outside the submitting thread. All sums, the idle time of workers and its reasons, and the
// dependencies between tasks are found from the records afterwards (engine/profile_sums.cc).
// Unless it says otherwise, what is here belongs to the submitting thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/task.h"

struct starpu_task;

namespace nn {

// Times are microseconds of CLOCK_MONOTONIC, the clock of nn.now(); 0: not yet.
struct alignas(64) TaskRecord {
    const Kernel* kernel;  // null for a worker that helps others with their task (kernels/team.h)
    const char *op, *layer;
    float flops, bytes;
    uint32_t run, index;    // which run of a program (from 1) and its how-manieth task; 0: eager
    uint64_t first_access;  // of its tiles, in Profile::accesses
    uint8_t accesses;
    Dtype dtype;
    bool skipped;                          // it needed what a failed task was to give
    int16_t worker;                        // StarPU's number
    int32_t tile, rank, extent[max_dims];  // which tile of the op's result, and its extents
    double submitted, ready;               // ready: nothing that it depends on is left to do
    double popped, launched;               // taken by a worker; all its data are there
    double start, end;                     // of the kernel; on a CPU launched = start
    const char* name() const { return kernel ? kernel->name.c_str() : op; }
};

// What the submitting thread did.
struct SpanRecord {
    const char *what, *op;  // "submit" or "wait"; op: of an eager submission
    int64_t tasks;          // that were submitted
    double start, end;
};

constexpr int64_t default_profile_limit = int64_t(1) << 20;  // records, of 192 bytes each
// Ends what was recorded before. While on, the engine records tasks, up to the limit: what is
// submitted after that is counted only, and the profile ends there. No task may be in flight.
void enable_profile(bool on, int64_t limit = default_profile_limit);
void stop_profile();  // the records stay; likewise

extern std::atomic<bool> profile_on;
inline bool profiling() { return profile_on.load(std::memory_order_relaxed); }

double profile_now();

// --- Recording ---

// What a task is called: its op, or its kernel where a script submits it, or a program copies.
const char* op_of(const TaskArg& arg);
// Makes a task's record and lets StarPU's callbacks fill in when it is ready and popped. Null where
// the limit is reached.
void record_task(const Task& task, starpu_task* t);
void record_helper(starpu_task* t);
void withdraw_record(starpu_task* t);  // its submission failed
// The record of the task that the calling worker runs; null if it has none. On any thread.
TaskRecord* current_record();

// The time of a kernel on a CPU worker. On any thread.
class KernelTimer {
public:
    KernelTimer();
    ~KernelTimer() {
        if (record_) record_->end = profile_now();
    }
    KernelTimer(const KernelTimer&) = delete;

private:
    TaskRecord* const record_;
};

// What the submitting thread does for as long as one exists. Of submissions within another, only
// the outer one is recorded.
class ProfileSpan {
public:
    enum Kind { submit, wait };
    // first: a task of the op that is submitted; null for a program, and where nothing is.
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
// While one exists, the tasks that are recorded are those of a run of a program.
struct ProfileRun {
    ProfileRun();
    ~ProfileRun();
    ProfileRun(const ProfileRun&) = delete;
};

// --- Layers: the module that emits a task, as a path such as "blocks.3.mlp" ---

int32_t layer_id(const std::string& name);  // 0 for ""; the same number for the same name
const char* current_layer();                // lives for ever
int32_t set_layer(int32_t id);              // returns the one before

// --- What was recorded: after stop_profile() ---

struct WorkerTimes {
    std::string name;  // "CPU 0", "GPU 1"
    bool gpu;
    int64_t tasks;
    // Seconds. A worker is busy, or it waits: for data of its next task to be copied; since what
    // was submitted depends on tasks that still run; since nothing was submitted; or for the
    // engine, which has a task that is ready.
    double busy, data, dependencies, nothing, engine;
};
struct ProfileTotals {
    double seconds;
    int64_t tasks, lost;               // lost: after the limit
    std::vector<WorkerTimes> workers;  // by StarPU's number
};
struct KernelStat {
    int64_t calls;
    double seconds, flops, bytes;
};
struct ProfileGroup {
    const char* name;
    KernelStat stat;
};
enum class GroupBy { kernel, op, layer };

ProfileTotals profile_totals();
std::vector<ProfileGroup> profile_groups(GroupBy by);  // most seconds first
KernelStat kernel_stat(const Kernel* kernel);          // also while profiling, of finished tasks
double profile_begin();
int64_t profile_tasks();
const TaskRecord& profile_task(int64_t i);  // in the order of submission
const std::vector<SpanRecord>& profile_spans();
// Tasks that this one waited for, of those recorded: the last that wrote one of its tiles, and
// where it writes one itself, those that read it since.
const std::vector<uint32_t>& tasks_before(int64_t i);

}  // namespace nn
