#include "engine/runtime/worker.h"

#include <starpu.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <unordered_map>

#include "engine/base/delays.h"
#include "engine/memory/arena.h"
#include "engine/memory/stalls.h"
#include "engine/profile/records.h"
#include "engine/runtime/failures.h"
#include "engine/runtime/gpu.h"
#include "engine/runtime/rates.h"
#include "engine/runtime/watchdog.h"
#include "kernels/team.h"

namespace nn {
namespace {

std::atomic<int64_t> team_tasks{0};  // announced and not yet run

// NNLUA_POISON=1, for tests: fills the new tiles of a task with NaN (-1 for integers) before it.
void poison(void* buffers[], bool gpu) {
    static const bool on = std::getenv("NNLUA_POISON") != nullptr;
    if (!on) return;
    const starpu_task* t = starpu_task_get_current();
    for (int i = 0; i < t->nbuffers; ++i) {
        if (t->modes[i] != STARPU_W) continue;
        void* data = reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[i]));
        const size_t bytes = STARPU_VARIABLE_GET_ELEMSIZE(buffers[i]);
        if (gpu)
            poison_on_gpu(data, bytes);
        else
            std::memset(data, 0xFF, bytes);
    }
}

// An error if the system had no memory for a tile of the task, else "".
std::string missing_memory(void* buffers[]) {
    const starpu_task* t = starpu_task_get_current();
    for (int i = 0; i < t->nbuffers; ++i)
        if (is_refused(reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[i]))))
            return no_memory_for(STARPU_VARIABLE_GET_ELEMSIZE(buffers[i]));
    return "";
}

std::string run_kernel_on_cpu(const TaskArg& arg, void* const* operands) {
    if (take_failure()) return "failed by NNLUA_FAIL_KERNEL";
    std::string error;
    arg.kernel->on(Device::cpu)(KernelCall{operands, arg.params, arg.dtype, nullptr, &error});
    return error;
}

void skip(const TaskArg& arg) {
    note_skipped(arg);
    if (!profiling()) return;
    if (TaskRecord* record = current_record()) record->skipped = true;
}

// On a GPU this only starts the kernel; note_result is called at its end.
void run_on_worker(void* buffers[], const TaskArg& arg, bool gpu) {
    if (needs_failed_value()) return skip(arg);
    if (arena_failures() > 0) {
        const std::string error = missing_memory(buffers);
        if (!error.empty()) return note_result(arg, error);
    }
    void* operands[max_operands];
    for (int i = 0; i < arg.operands; ++i)
        operands[i] =
            arg.buffer_of[i] < 0
                ? nullptr
                : reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[arg.buffer_of[i]]));
    std::string error;
    const Watched watched(arg);
    try {
        poison(buffers, gpu);
        announce_call(arg.kernel->name.c_str());
        error = gpu ? run_on_gpu(arg, operands, note_result) : run_kernel_on_cpu(arg, operands);
    } catch (const std::bad_alloc&) {
        error = "out of memory: the kernel cannot allocate its temporary values";
    } catch (const std::exception& e) {
        error = e.what();
    }
    if (!gpu || !error.empty()) note_result(arg, error);
}

template <bool gpu> void run_task(void* buffers[], void* cl_arg) {
    const TaskArg& arg = *static_cast<TaskArg*>(cl_arg);
    if (has_delays) wait_randomly(0.2);
    {
        const Computing computing(!gpu);
        const KernelTimer timer(!gpu);
        run_on_worker(buffers, arg, gpu);
    }
    if (arg.in_team) --team_tasks;
}

// Ends with the last task of the program, so that the worker is free for later tasks.
void join_team(void*[], void*) {
    const Computing computing;
    const KernelTimer timer;
    team::help(int(starpu_cpu_worker_get_count()) - 1, [] { return team_tasks > 0; });
}

starpu_codelet* new_codelet(const char* name, starpu_cpu_func_t run_on_cpu) {
    auto* codelet = static_cast<starpu_codelet*>(std::calloc(1, sizeof(starpu_codelet)));
    starpu_codelet_init(codelet);
    codelet->name = name;
    codelet->cpu_funcs[0] = run_on_cpu;
    return codelet;
}

}  // namespace

// All codelets have the same functions; profiles and traces show their names. Never destroyed:
// tasks may outlive everything else.
starpu_codelet* codelet_of(const Kernel* kernel) {
    static auto* const codelets = new std::unordered_map<const Kernel*, starpu_codelet*>;
    starpu_codelet*& codelet = (*codelets)[kernel];
    if (!codelet) {
        const auto run_on_cpu = kernel->on(Device::cpu) ? run_task<false> : nullptr;
        codelet = new_codelet(kernel->name.c_str(), run_on_cpu);
        codelet->nbuffers = STARPU_VARIABLE_NBUFFERS;
        if (kernel->on(Device::cuda)) codelet->cuda_funcs[0] = run_task<true>;
        codelet->cuda_flags[0] = STARPU_CUDA_ASYNC;
    }
    // Workers read it, so it changes only between sessions with different devices.
    if (codelet->model != perf_model()) codelet->model = perf_model();
    return codelet;
}

starpu_codelet* team_codelet() {
    static starpu_codelet* const codelet = new_codelet("team", join_team);
    return codelet;
}

void expect_team_tasks(int64_t tasks) { team_tasks += tasks; }

}  // namespace nn
