#include "engine/workers/worker.h"

#include <starpu.h>

#include <array>
#include <atomic>
#include <bit>
#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <unordered_map>
#include <utility>

#include "engine/base/delays.h"
#include "engine/memory/arena.h"
#include "engine/memory/stalls.h"
#include "engine/profile/records.h"
#include "engine/workers/failures.h"
#include "engine/workers/gpu.h"
#include "engine/workers/rates.h"
#include "engine/workers/tile_checks.h"
#include "engine/workers/watchdog.h"
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
        if (STARPU_TASK_GET_MODE(t, i) != STARPU_W) continue;
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

std::string run_kernel_on_cpu(const TaskArg& arg, const Operands& operands) {
    if (take_failure()) return "failed by NNLUA_FAIL_KERNEL";
    std::string error;
    arg.kernel->on(Device::cpu)(
        KernelCall{operands.data(), arg.params, arg.dtype, nullptr, &error});
    return error;
}

void skip(const TaskArg& arg) {
    tile_checks::note_kept();
    note_skipped(arg);
    if (!profiling()) return;
    if (TaskRecord* record = current_record()) record->skipped = true;
}

// error: "" for success.
void end_task(const TaskArg& arg, const std::string& error) {
    if (!error.empty()) {
        tile_checks::forget_task();
        return note_result(arg, error);
    }
    try {
        tile_checks::note_results(arg.op);
        note_result(arg, "");
    } catch (const std::exception& e) {
        tile_checks::forget_task();
        note_result(arg, e.what());
    }
}

std::string wrong_operand(const char* op) {
    try {
        return tile_checks::problem_before_task(op);
    } catch (const std::exception& e) {
        return e.what();
    }
}

Operands find_operands(void* buffers[], const TaskArg& arg) {
    Operands out{};
    for (int i = 0; i < arg.operands; ++i)
        if (arg.buffer_of[i] >= 0)
            out[size_t(i)] =
                reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[arg.buffer_of[i]]));
    return out;
}

// How many of the kernels, from the first, a GPU computes at once: they are alike, and none uses
// what another one writes.
int alike_on_gpu(const TaskArg* const* args, int count) {
    const TaskArg& first = *args[0];
    if (!first.kernel->many_on(Device::cuda) || failure_is_injected()) return 1;
    std::bitset<max_group_tiles> used, written;  // by the number of a buffer
    for (int n = 0; n < count; ++n) {
        const TaskArg& arg = *args[n];
        bool fits = arg.kernel == first.kernel && arg.dtype == first.dtype;
        for (int i = 0; i < arg.operands; ++i) {
            if (arg.buffer_of[i] < 0) continue;
            const auto buffer = size_t(arg.buffer_of[i]);
            const bool writes = arg.kernel->operands[size_t(i)].mode != Mode::read;
            if (written[buffer] || (writes && used[buffer])) fits = false;
        }
        if (!fits) return n;
        for (int i = 0; i < arg.operands; ++i) {
            if (arg.buffer_of[i] < 0) continue;
            const auto buffer = size_t(arg.buffer_of[i]);
            used[buffer] = true;
            if (arg.kernel->operands[size_t(i)].mode != Mode::read) written[buffer] = true;
        }
    }
    return count;
}

// Runs so many kernels, on a CPU one. On a GPU this only starts them. Returns an error, or "".
std::string run_kernels(void* buffers[], const TaskArg* const* args, int count, bool gpu) {
    std::array<Operands, max_group> operands;
    for (int i = 0; i < count; ++i) operands[size_t(i)] = find_operands(buffers, *args[i]);
    const Watched watched(*args[0]);
    try {
        announce_call(args[0]->kernel->name.c_str());
        return gpu ? start_on_gpu(args, count, operands.data())
                   : run_kernel_on_cpu(*args[0], operands[0]);
    } catch (const std::bad_alloc&) {
        return "out of memory: the kernel cannot allocate its temporary values";
    } catch (const std::exception& e) {
        return e.what();
    }
}

// Runs all kernels of a task, or starts them on a GPU, until one fails. Returns the error, or "",
// and the number of the failed one.
std::pair<std::string, int> run_all_kernels(void* buffers[], const TaskArg* const* args, int count,
                                            bool gpu) {
    for (int i = 0, n = 1; i < count; i += n) {
        n = gpu ? alike_on_gpu(args + i, count - i) : 1;
        std::string error = run_kernels(buffers, args + i, n, gpu);
        if (!error.empty()) return {std::move(error), i};
    }
    return {"", 0};
}

// Starts them as a CUDA graph. Returns false if they must be started one by one.
bool start_as_graph(void* buffers[], const TaskArg* const* args, int count, GpuGraph& graph) {
    if (failure_is_injected()) return false;
    std::array<Operands, max_group> operands;
    for (int i = 0; i < count; ++i) operands[size_t(i)] = find_operands(buffers, *args[i]);
    switch (begin_graph_on_gpu(graph, args, count, operands.data())) {
        case GraphUse::none: return false;
        case GraphUse::launched: return true;
        case GraphUse::recording: break;
    }
    return end_graph_on_gpu(graph, run_all_kernels(buffers, args, count, true).first);
}

// Runs the kernels of a task, which are several for a group. On a GPU, end_task is called when
// all have ended.
void run_on_worker(void* buffers[], const TaskArg* const* args, int count, bool gpu,
                   GpuGraph* graph = nullptr) {
    if (needs_failed_value()) return skip(*args[0]);
    if (arena_failures() > 0) {
        const std::string error = missing_memory(buffers);
        if (!error.empty()) return end_task(*args[0], error);
    }
    if (const std::string wrong = wrong_operand(args[0]->op); !wrong.empty())
        return end_task(*args[0], wrong);
    if (gpu && !begin_on_gpu(*args[0], count, end_task))
        return end_task(*args[0], "too many tasks are in flight on this GPU worker");
    try {
        poison(buffers, gpu);
    } catch (const std::exception& e) {
        return end_task(*args[0], e.what());
    }
    if (!graph || !start_as_graph(buffers, args, count, *graph)) {
        const auto [error, failed] = run_all_kernels(buffers, args, count, gpu);
        if (!error.empty()) return end_task(*args[failed], error);
    }
    if (gpu)
        end_on_gpu();
    else
        end_task(*args[count - 1], "");
}

template <bool gpu> void run_task(void* buffers[], void* cl_arg) {
    const TaskArg& arg = *static_cast<TaskArg*>(cl_arg);
    delay(0.2);
    {
        const Computing computing(!gpu);
        const KernelTimer timer(!gpu);
        const TaskArg* const only = &arg;
        run_on_worker(buffers, &only, 1, gpu);
    }
    if (arg.in_team) --team_tasks;
}

template <bool gpu> void run_group(void* buffers[], void* cl_arg) {
    const auto& group = *static_cast<GroupArg*>(cl_arg);
    delay(0.2);
    const Computing computing(!gpu);
    const KernelTimer timer(!gpu);
    run_on_worker(buffers, group.args, group.count, gpu, group.graph);
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

starpu_codelet* group_codelet(size_t tiles) {
    static std::array<starpu_codelet*, 64> codelets{};
    const auto size = size_t(std::bit_width(tiles));
    starpu_codelet*& codelet = codelets[size];
    if (!codelet) {
        codelet = new_codelet("group", run_group<false>);
        codelet->nbuffers = STARPU_VARIABLE_NBUFFERS;
        codelet->cuda_funcs[0] = run_group<true>;
        codelet->cuda_flags[0] = STARPU_CUDA_ASYNC;
        // StarPU 1.4.10 reads nodes[i] for every tile of a task, even if specific_nodes is 0, and
        // `nodes` has only STARPU_NMAXBUFS entries.
        codelet->dyn_nodes = static_cast<int*>(std::calloc(size_t(1) << size, sizeof(int)));
    }
    if (codelet->model != perf_model_of_groups()) codelet->model = perf_model_of_groups();
    return codelet;
}

starpu_codelet* team_codelet() {
    static starpu_codelet* const codelet = new_codelet("team", join_team);
    return codelet;
}

starpu_codelet* nowhere_codelet(const char* name, int buffers) {
    starpu_codelet* const codelet = new_codelet(name, nullptr);
    codelet->where = STARPU_NOWHERE;
    codelet->nbuffers = buffers;
    return codelet;
}

void expect_team_tasks(int64_t tasks) { team_tasks += tasks; }

}  // namespace nn
