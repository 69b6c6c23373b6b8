#include "engine/runtime/session.h"

#include <starpu.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/base/threads.h"
#include "engine/machine/memory_limit.h"
#include "engine/machine/ranks.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/ranks/control.h"
#include "engine/ranks/transport.h"
#include "engine/residency/homes.h"
#include "engine/runtime/environment.h"
#include "engine/runtime/rank_checks.h"
#include "engine/workers/deferred.h"
#include "engine/workers/gpu.h"
#include "engine/workers/handles.h"
#include "engine/workers/rates.h"
#include "engine/workers/tile_checks.h"
#include "engine/workers/waits.h"
#include "engine/workers/watchdog.h"
#include "engine/workers/workers.h"
#include "kernels/blas.h"
#include "kernels/products/products.h"

namespace nn {
namespace {

SessionOptions chosen;

bool has_gpus = false;  // set before StarPU starts

// With GPUs the allocation fails instead: StarPU would copy from and to the refused block, and it
// can evict other blocks and try again.
int allocate_from_arena(unsigned, void** block, size_t bytes, int) {
    *block = arena_allocate(bytes);
    if (!*block && !has_gpus) *block = refused_block();
    return *block ? 0 : -ENOMEM;
}
int free_to_arena(unsigned, void* block, size_t bytes, int) {
    arena_free(block, bytes);
    return 0;
}

// More workers than cores take turns, and wait for each other at the end of every step.
void warn_if_oversubscribed() {
    static bool warned = false;
    if (!host_is_oversubscribed() || std::exchange(warned, true)) return;
    const int workers = host().count(Device::cpu), cores = usable_cores();
    std::fprintf(stderr,
                 "nnlua: warning: NNLUA_CPUS=%d asks for more workers than the %d core%s that this "
                 "process may use; they take turns, which is slower\n",
                 workers, cores, cores == 1 ? "" : "s");
}

void warn_of_gpu_problem() {
    static bool warned = false;
    if (chosen.host.gpus >= 0 || ranks().number_on_host > 0 || gpu_problem().empty()) return;
    if (std::exchange(warned, true)) return;
    std::fprintf(stderr,
                 "nnlua: warning: no GPU is used, and all runs on CPU cores, which is slower: %s; "
                 "nn.devices{gpus=0} chooses CPU cores\n",
                 gpu_problem().c_str());
}

// "; the driver is too old ...", for errors about missing GPUs.
std::string gpu_advice() {
    return gpu_problem().empty() ? " (nnlua --health says why)" : ": " + gpu_problem();
}

void warn_if_without_gpu() {
    static bool warned = false;
    const int gpus = gpus_of_host();
    if (chosen.host.gpus >= 0 || ranks().number_on_host > 0 || gpus == 0 || gpus >= ranks().on_host)
        return;
    if (std::exchange(warned, true)) return;
    std::fprintf(
        stderr,
        "nnlua: warning: this host has %d GPU%s for %d ranks; those without one compute on "
        "CPU cores, which is slower; start fewer ranks here, or choose "
        "nn.devices{gpus=0}\n",
        gpus, gpus == 1 ? "" : "s", ranks().on_host);
}

// Sets StarPU's environment variables: the defaults, then the options of this session.
void prepare(int gpus) {
    static bool our_limit = false, our_streams = false;
    constexpr int writers = 2;  // of a checkpoint (engine/io)
    prepare_environment(host().count(Device::cpu) + gpus * std::max(1, chosen.streams) + writers);
    set_option("STARPU_LIMIT_CUDA_MEM", chosen.host.gpu_memory >> 20, our_limit);
    set_option("STARPU_NWORKER_PER_CUDA", chosen.streams, our_streams);
}

// StarPU would end the program if the system refuses to bind a thread.
void choose_binding() {
    static bool ours = false, warned = false;
    std::string refusal;
    if (std::exchange(ours, false)) unsetenv("STARPU_WORKERS_NOBIND");
    if (std::getenv("STARPU_WORKERS_NOBIND") || workers_are_bound(&refusal)) return;
    setenv("STARPU_WORKERS_NOBIND", "1", 1);
    ours = true;
    if (refusal.empty() || ranks().number_on_host > 0 || std::exchange(warned, true)) return;
    std::fprintf(stderr,
                 "nnlua: warning: the system refuses to bind threads to cores (%s), so workers may "
                 "move between cores, which can be slower\n",
                 refusal.c_str());
}

int init_starpu(int gpus) {
    // No work stealing (lws) on CPUs: StarPU 1.4.10 sometimes never runs a task that an idle worker
    // should fetch (seen within 10,000 small tasks, also with one worker).
    const char* const default_scheduler = gpus > 0 ? "dmdas" : "prio";
    const StartGuard guard;
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.catch_signals = 0;
    conf.ncpus = host().count(Device::cpu);
    conf.ncuda = gpus == 0 ? 0 : chosen.host.gpus;  // -1: all
    if (gpus > 0 && ranks().on_host > 1) {
        conf.ncuda = gpus;
        conf.use_explicit_workers_cuda_gpuid = 1;
        for (int gpu = 0; gpu < gpus; ++gpu)
            conf.workers_cuda_gpuid[gpu] = unsigned(first_gpu() + gpu);
    }
    conf.sched_policy_name =
        chosen.scheduler.empty() ? default_scheduler : chosen.scheduler.c_str();
    return starpu_init(&conf);
}

// CUDA may have failed meanwhile. Tilings and the number of CPU workers assume all of them.
void need_all_gpus(int gpus) {
    const int found = int(first_streams().size());
    if (found < gpus)
        fail(
            "StarPU can use %d of %d GPUs; if STARPU_NCUDA is set, unset it and choose "
            "nn.devices{gpus=%d}; STARPU_SILENT=0 shows StarPU's messages",
            found, gpus, found);
}

void stop_starpu() {
    rank_checks::stop();
    if (ranks().several()) transport::stop();
    set_running(false);
    starpu_shutdown();
    set_pinning({});
    workers_stopped();
}

// NNLUA_CHECKS=tiles, unless the program chooses.
void read_checks() {
    static bool done = false;
    if (std::exchange(done, true)) return;
    const char* const text = std::getenv("NNLUA_CHECKS");
    const std::string wanted = text && *text ? text : "off";
    if (wanted != "tiles" && wanted != "off")
        fail("NNLUA_CHECKS is '%s'; tiles or off is needed", text);
    if (wanted == "tiles") checks_tiles = true;
}

}  // namespace

void configure(const SessionOptions& options) {
    if (running()) fail("devices must be chosen before the first tensor is computed");
    check_scheduler(options.scheduler);
    choose_host(options.host);
    forget_default_budget();
    chosen = options;
}

bool check_tiles(int chosen) {
    read_checks();
    const bool before = tile_checks::on();
    if (chosen >= 0 && running()) fail("checks must be chosen before the first tensor is computed");
    if (chosen >= 0) checks_tiles = chosen != 0;
    return before;
}

void start() {
    if (gpu_is_lost()) raise_lost_gpu();
    if (running()) return;
    if (ranks().several() && !control::started())
        fail("this program runs on one rank only; start it without mpirun, or a script with nnlua");
    read_checks();
    warn_if_oversubscribed();
    warn_if_without_gpu();
    warn_of_gpu_problem();
    start_watchdog();
    const int gpus = host().count(Device::cuda);
    if (gpus > usable_gpus())
        fail("nn.devices asks for %d GPUs; %s %d%s", gpus,
             ranks().on_host > 1 ? "this rank's share of the host's is"
                                 : "this machine and build have",
             usable_gpus(), gpu_advice().c_str());
    check_room();  // measures the budget, before StarPU takes memory
    workers_start();
    const SignalsBlocked in_the_threads;
    has_gpus = gpus > 0;
    prepare(gpus);
    choose_binding();
    blas::load();        // before workers start, because it changes the environment briefly
    products::choice();  // may measure, and the workers would disturb that
    starpu_malloc_set_hooks(allocate_from_arena, free_to_arena);
    if (gpus != 0) pin_host_memory();
    if (const int status = init_starpu(gpus); status != 0)
        fail(
            "StarPU does not start (%s); nnlua --version shows the build, STARPU_SILENT=0 "
            "StarPU's messages",
            std::strerror(-status));
    set_running(true);
    if (ranks().several())
        transport::start([](const char* what) { control::fail_all(format("MPI: %s", what)); });
    try {
        need_all_gpus(gpus);
        start_gpus();
        start_rates();
    } catch (...) {
        stop_starpu();
        throw;
    }
}

void shutdown() {
    if (!running()) return;
    defer(nullptr, {});  // the values end anyway
    wait_for_tasks();
    if (ranks().several()) control::gather("the shutdown of the engine", "", check_interrupt);
    enable_profile(false);
    drop_handles();
    drop_tiers();
    stop_gpus();
    stop_starpu();
}

int cpu_workers() {
    start();
    return running_cpu_workers();
}

bool uses_cuda_graphs() { return chosen.cuda_graphs; }

int gpus() {
    start();
    return int(first_streams().size());
}

void start_profile(int64_t limit) {
    start();
    anchor_gpu_times();
    enable_profile(true, limit);
}

ProfileTotals session_totals() {
    std::vector<WorkerTimes> workers;
    for (int w = 0; running() && w < int(starpu_worker_get_count()); ++w)
        workers.push_back({worker_name(w), gpu_of(w) >= 0});
    return profile_totals(std::move(workers), memory_nodes() > 1);
}

void run_tasks_on(Where where) {
    if (where == Where::gpu && gpus() == 0)
        fail("tasks cannot run on GPUs: this build can use none%s", gpu_advice().c_str());
    if (where == Where::cpu && cpu_workers() == 0)
        fail("tasks cannot run on CPU cores: no CPU worker exists");
    settings().where = where;
}

}  // namespace nn
