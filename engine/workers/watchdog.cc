#include "engine/workers/watchdog.h"

#include <starpu.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/exit_files.h"
#include "engine/base/waiting.h"
#include "engine/graph/task.h"
#include "engine/machine/ranks.h"
#include "engine/memory/arena.h"
#include "engine/ranks/standstill.h"
#include "engine/ranks/transport.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

constexpr double check_interval = 0.1;         // seconds
constexpr double seconds_for_ranks = 20;       // to report first that all stand still
constexpr double seconds_without_memory = 10;  // only with GPUs: StarPU may first evict other tiles

// Stores release and loads acquire, so whoever reads a value also sees what was written before it.
template <class T> struct Published {
    std::atomic<T> value{};
    void operator=(T v) { value.store(v, std::memory_order_release); }
    operator T() const { return value.load(std::memory_order_acquire); }
};

// A worker's record of one task, written by its thread alone. The sequence number is odd while the
// task runs. The main thread reads the other fields only if the number did not change for the whole
// limit, and discards them if the number has changed afterwards.
struct alignas(64) Record {
    Published<uint64_t> sequence;
    Published<const char*> op;
    Published<const Kernel*> kernel;
    Published<Dtype> dtype;
    Published<int32_t> tile, rank;
    Published<int32_t> extent[max_dims];
};
Record records[STARPU_NMAXWORKERS][watched_tasks];

// The sequence number that the main thread last saw, and since when.
struct Seen {
    uint64_t sequence = 0;
    double since = 0;
};
Seen seen[STARPU_NMAXWORKERS][watched_tasks];
Seen progress;                // the sum of all sequence numbers
int64_t failures_before = 0;  // of allocations, when the last progress was seen
double limit = 0, last_check = 0;
bool found = false;

// The first failure that made a GPU unusable.
constexpr double seconds_to_raise = 5;
std::mutex lost_mutex;
std::string lost_message;
std::atomic<bool> is_lost{false}, is_raised{false};

Record& record_of(int number) { return records[starpu_worker_get_id()][number]; }

// "" if the task has ended.
std::string describe(int worker, const Record& record, uint64_t sequence) {
    const Dims extent(record.extent, record.extent + record.rank);
    const char* const op = record.op;
    const std::string text =
        format("%s (%s) on %s", op,
               description_of(*record.kernel, record.dtype, record.tile, extent).c_str(),
               worker_name(worker).c_str());
    return record.sequence == sequence ? text : "";
}

// The tasks that run longer than the limit. *sum: of all sequence numbers; *busy: whether any task
// runs.
std::string find_overdue(uint64_t* sum, bool* busy) {
    constexpr int max_named = 4;
    int overdue = 0;
    std::string names;
    for (int worker = 0; worker < int(starpu_worker_get_count()); ++worker)
        for (int number = 0; number < watched_tasks; ++number) {
            const Record& record = records[worker][number];
            Seen& last = seen[worker][number];
            const uint64_t sequence = record.sequence;
            *sum += sequence;
            *busy = *busy || sequence % 2;
            if (sequence != last.sequence) last = {sequence, last_check};
            if (sequence % 2 == 0 || last_check - last.since < limit) continue;
            const std::string text = describe(worker, record, sequence);
            if (!text.empty() && ++overdue <= max_named) names += (overdue > 1 ? "; " : "") + text;
        }
    if (overdue > max_named) names += format("; and %d more", overdue - max_named);
    return names;
}

// Any thread.
standstill::Workers workers_now() {
    standstill::Workers out{0, false};
    for (const auto& of_worker : records)
        for (const Record& record : of_worker) {
            const uint64_t sequence = record.sequence;
            out.begun_and_ended += sequence;
            out.are_busy = out.are_busy || sequence % 2;
        }
    return out;
}

// What the calling worker's GPU lost by its failure.
std::string message_of_worker(const std::string& what) {
    const int worker = starpu_worker_get_id();
    std::string tasks;
    for (const Record& record : records[worker])
        if (record.sequence % 2 && tasks.empty())
            tasks = "; it ran " + describe(worker, record, record.sequence);
    return worker_name(worker) + " failed: " + what + tasks +
           ". What it computed is lost, and this process cannot use it any more. Files that were "
           "saved are complete: start again from the last checkpoint";
}

[[noreturn]] void print_and_exit() {
    if (!is_raised) std::fprintf(stderr, "nnlua: %s\n", lost_message.c_str());
    std::fflush(nullptr);
    exit_files::end_process(1);
}

bool waiting() { return starpu_task_nsubmitted() > 0 || transport::under_way() > 0; }

constexpr const char* advice =
    "; NNLUA_WATCHDOG=SECONDS sets this limit (0: none). The program cannot continue before they "
    "end";

}  // namespace

void watch_begins(const TaskArg& arg, int number) {
    Record& record = record_of(number);
    record.op = arg.op, record.kernel = arg.kernel, record.dtype = arg.dtype;
    record.tile = arg.tile, record.rank = arg.rank;
    for (int i = 0; i < arg.rank; ++i) record.extent[i] = arg.extent[i];
    record.sequence = record.sequence | 1;
}

void watch_ends(int number) {
    Record& record = record_of(number);
    const uint64_t sequence = record.sequence;
    record.sequence = sequence + sequence % 2;
}

void lose_gpu(const std::string& what) {
    const bool at_work = running() && starpu_worker_get_id() >= 0;
    bool is_first = false;
    {
        std::lock_guard lock(lost_mutex);
        is_first = lost_message.empty();
        if (is_first) lost_message = at_work ? message_of_worker(what) : "a GPU failed: " + what;
    }
    is_lost = true;
    if (!at_work) print_and_exit();
    using std::this_thread::sleep_for;
    for (double waited = 0; waited < seconds_to_raise && !is_raised; waited += check_interval)
        sleep_for(std::chrono::duration<double>(check_interval));
    if (is_first && !is_raised) print_and_exit();
    while (true) sleep_for(std::chrono::hours(1));
}

bool gpu_is_lost() { return is_lost; }

void raise_lost_gpu() {
    found = is_raised = true;
    std::lock_guard lock(lost_mutex);
    fail("%s", lost_message.c_str());
}

void start_watchdog() {
    limit = watchdog_limit();
    standstill::set_workers(workers_now);
}

void check_for_hangs() {
    const double before = last_check, at = now_seconds();
    if (at - before < check_interval) return;
    last_check = at;
    if (gpu_is_lost()) raise_lost_gpu();
    uint64_t sum = 0;
    bool busy = false;
    const std::string overdue = find_overdue(&sum, &busy);
    found = true;
    if (limit > 0 && !overdue.empty())
        fail("a task hangs, or takes more than %g s: %s%s", limit, overdue.c_str(), advice);
    // After a long time without checks, progress may have been missed.
    if (sum != progress.sequence || busy || at - before > 10 * check_interval) {
        progress = {sum, at};
        failures_before = arena_failures();
    }
    const double idle = at - progress.since;
    // StarPU repeats an allocation that failed.
    if (arena_failures() > failures_before && idle >= seconds_without_memory && waiting())
        fail(
            "out of memory: the system cannot allocate more, and %d submitted tasks wait for "
            "memory",
            starpu_task_nsubmitted());
    const double most_idle = limit + (ranks().several() ? seconds_for_ranks : 0);
    if (limit > 0 && idle >= most_idle && waiting())
        fail(
            "no progress for %g s: none of %d submitted tasks is running, and %lld transfers from "
            "and to other ranks wait%s",
            most_idle, starpu_task_nsubmitted(), (long long)transport::under_way(), advice);
    found = false;
}

bool hangs() { return found; }

}  // namespace nn
