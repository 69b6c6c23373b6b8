// The one StarPU session of the process: start, stop, waiting, errors from kernels, Ctrl-C, scalar
// slots, the random counter and the run-time statistics.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/task.h"

namespace nn {

struct RuntimeOptions {
    int cpus = 0;            // CPU workers; 0: one per core that this process may use
    std::string scheduler;   // empty: prio on CPUs, dmdas with GPUs
    int gpus = -1;           // at most so many; -1: all
    int64_t gpu_memory = 0;  // bytes that tiles may take on each GPU; 0: 90 % of its memory
    int streams = 0;         // of each GPU, each a worker of StarPU's; 0: one
};

void configure(const RuntimeOptions& options);  // before the first task; an error afterwards
void start();                                   // idempotent; called by the first submission
void shutdown();  // waits for all tasks; idempotent; handles that still exist become inert
bool running();
uint32_t runtime_number();  // counts starts, so that a tile knows whether its handle is still alive
int cpu_workers();          // starts the runtime
int gpus();                 // likewise; a GPU has a worker for each of its streams
std::vector<int> first_streams();  // a worker of each GPU, while StarPU runs
std::string gpu_name(int worker);  // "GPU 0"; of several streams "GPU 0, stream 2"
int planned_workers();             // how many CPU workers there are or will be; starts nothing
int planned_gpus();                // likewise, of the GPUs that tasks may go to (place_tasks)
std::string starpu_version();
int places();                        // memories: RAM first, then the GPUs'; 1 until tasks have run
std::string place_name(int number);  // "RAM", "GPU 0"
struct PlaceMemory {
    int64_t used, limit;  // bytes; what is kept for reuse counts as used
};
PlaceMemory place_memory(int number);
int64_t bytes_moved();  // between memories, so far

// Every entry of the C API calls this: throws the error of a failed kernel, once, or Interrupted.
void check_pending();
void report_kernel_error(const TaskArg& arg, const std::string& message);

void request_interrupt();  // async-signal-safe
bool interrupt_requested();
bool clear_interrupt();  // true if there was one
bool interrupts_deferred();
void defer_interrupts(bool deferred);  // while true, only interrupt_requested() tells
struct InterruptsDeferred {  // the same for as long as it exists, within one call of the engine
    InterruptsDeferred();
    ~InterruptsDeferred();
};

int64_t unfinished_tasks();
void wait_all();   // until every submitted task is done
void wait_done();  // the same, and leaves it to others to report errors
void wait_below(int64_t tasks);
void wait_for(const std::function<bool()>& done);  // interruptible, like all waits
void wait_readable(Tile& tile, void (*use)(void* data, void* context), void* context);
void wait_writable(Tile& tile, void (*use)(void* data, void* context), void* context);
void idle();  // nothing to do for a while: workers sleep until the next submission
void ensure_awake();

// Scalar slots: numbers that recorded tasks read at submission.
int32_t new_slot(double value);
void free_slot(int32_t slot);
void hold_slot(
    int32_t slot);  // by a program: it stays readable after free_slot, until release_slot
void release_slot(int32_t slot);
double slot_value(int32_t slot);
void set_slot(int32_t slot, double value);

// Randomness: a task's counter is the value of random_counter() when it is submitted eagerly; a
// recording counts from 0 and each replay adds the counter's value at its start.
void seed_random(uint64_t seed);
uint64_t random_seed();
uint64_t random_counter();
void set_random_counter(uint64_t counter);
uint64_t next_random();

// Whether products of f32 emitted from now on may be rounded to TF32 on GPUs.
void allow_tf32(bool allowed);
bool tf32_allowed();
// Who computes attention on GPUs: a number of nn_attention_params::backend.
void choose_attention(int32_t backend);
int32_t attention_choice();

// Where tasks submitted from now on run that do not say so themselves: 0 anywhere, else STARPU_CPU
// or STARPU_CUDA.
void place_tasks(uint32_t where);
uint32_t tasks_place();

struct RuntimeStats {
    int64_t tasks, replayed_tasks;
    double replay_seconds,      // submission of replayed tasks, of own_seconds(): all of it,
        starpu_seconds;         // and StarPU's part
    int64_t earlier_tasks = 0;  // before the others were cleared
};
// The calling thread's own time: what it waits for a core, which workers may hold, is no part of
// it.
double own_seconds();
RuntimeStats runtime_stats();
RuntimeStats& mutable_stats();

}  // namespace nn
