#include "engine/runtime.h"

#include <semaphore.h>
#include <starpu.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "engine/costs.h"
#include "engine/error.h"
#include "engine/gpu.h"
#include "engine/memory.h"
#include "engine/profile.h"
#include "engine/program.h"
#include "engine/startup.h"
#include "engine/watchdog.h"
#include "kernels/blas.h"

namespace nn {
namespace {

struct Runtime {
    RuntimeOptions options;
    bool running = false, paused = false;
    uint32_t number = 0;

    std::mutex error_mutex;
    std::string error;
    std::atomic<bool> has_error{false};
    bool interrupts_deferred = false;  // by the caller
    int undivided = 0;                 // calls in progress that an interrupt must not cut short

    RuntimeStats stats{};
    bool tf32 = false;
    int32_t attention = 0;
    uint32_t place = 0;
};
Runtime state;
volatile std::sig_atomic_t interrupted = 0;

int arena_malloc_hook(unsigned, void** block, size_t bytes, int) {
    *block = arena_allocate(bytes);
    return *block ? 0 : -ENOMEM;
}
int arena_free_hook(unsigned, void* block, size_t bytes, int) {
    arena_free(block, bytes);
    return 0;
}

void pause_ns(long ns) {
    const timespec t{0, ns};
    nanosleep(&t, nullptr);
}

void check_interrupt() {
    if (interrupted && !state.interrupts_deferred && state.undivided == 0) throw Interrupted();
}

// Waits until done() holds; a signal ends the wait unless interrupts are deferred.
template <class F> void wait_until(F done) {
    if (done()) return;
    const ProfileSpan span(ProfileSpan::wait);
    for (int spins = 0; !done(); ++spins) {
        check_interrupt();
        look_for_hangs();
        pause_ns(spins < 50 ? 20'000 : 500'000);
    }
}

// Until no task is left, whatever signals come.
void wait_for_the_end() {
    for (int spins = 0; starpu_task_nsubmitted() > 0; ++spins) {
        look_for_hangs();
        pause_ns(spins < 50 ? 20'000 : 500'000);
    }
}

// An acquisition cannot be taken back. One that an interrupt left behind releases itself when it
// comes.
struct Acquisition {
    enum { waiting, ready, abandoned };
    std::atomic<int> state{waiting};
    starpu_data_handle_t handle;
    sem_t came;  // the last that on_acquired touches
    Acquisition() { sem_init(&came, 0, 0); }
    ~Acquisition() { sem_destroy(&came); }
};

// Woken when it comes: sleeping and looking again would cost generated text a part of each token. A
// signal ends the wait unless interrupts are deferred; one that comes just before is seen later.
void wait_for_acquisition(Acquisition& a) {
    const ProfileSpan span(ProfileSpan::wait);
    while (true) {
        if (interrupted && !state.interrupts_deferred && state.undivided == 0) throw Interrupted();
        timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 20'000'000;
        until.tv_sec += until.tv_nsec / 1'000'000'000, until.tv_nsec %= 1'000'000'000;
        if (sem_timedwait(&a.came, &until) == 0) return;
        look_for_hangs();
    }
}

void on_acquired(void* context) {
    Acquisition* a = static_cast<Acquisition*>(context);
    int expected = Acquisition::waiting;
    if (a->state.compare_exchange_strong(expected, Acquisition::ready)) {
        sem_post(&a->came);
        return;
    }
    starpu_data_release_on_node(a->handle, STARPU_MAIN_RAM);
    delete a;
}

void acquire(Tile& tile, starpu_data_access_mode mode, void (*use)(void*, void*), void* context) {
    starpu_data_handle_t handle = tile.handle();
    ensure_awake();
    auto acquisition = std::make_unique<Acquisition>();
    acquisition->handle = handle;
    const int status = starpu_data_acquire_on_node_cb(handle, STARPU_MAIN_RAM, mode, on_acquired,
                                                      acquisition.get());
    if (status != 0) fail("StarPU refuses to hand out a tile (%s)", std::strerror(-status));
    try {
        wait_for_acquisition(*acquisition);
    } catch (...) {
        int expected = Acquisition::waiting;
        if (acquisition->state.compare_exchange_strong(expected, Acquisition::abandoned)) {
            acquisition.release();  // on_acquired deletes it
        } else {
            while (sem_wait(&acquisition->came) != 0) {
            }
            starpu_data_release_on_node(handle, STARPU_MAIN_RAM);
        }
        throw;
    }
    try {
        check_pending();
        use(starpu_data_get_local_ptr(handle), context);
    } catch (...) {
        starpu_data_release_on_node(handle, STARPU_MAIN_RAM);
        throw;
    }
    starpu_data_release_on_node(handle, STARPU_MAIN_RAM);
}

}  // namespace

void configure(const RuntimeOptions& options) {
    if (state.running) fail("devices must be chosen before the first tensor is computed");
    check_scheduler(options.scheduler);
    state.options = options;
}

int planned_workers() {
    if (state.running) return int(starpu_cpu_worker_get_count());
    if (state.options.cpus > 0) return state.options.cpus;
    if (const char* cpus = std::getenv("NNLUA_CPUS"); cpus && *cpus) {
        char* end = nullptr;
        const long number = std::strtol(cpus, &end, 10);
        if (*end || number < 1 || number > 1 << 20)
            fail("NNLUA_CPUS is '%s'; a number of workers from 1 is needed", cpus);
        return int(number);
    }
    // Each GPU keeps a core busy with handing it its tasks.
    return std::max(1, usable_cores() - gpus_for(state.options));
}

int planned_gpus() {
    if (state.place == STARPU_CPU) return 0;
    return state.running ? int(first_streams().size()) : gpus_for(state.options);
}

namespace {

// More workers than cores take turns, and wait for each other at the end of every step.
void warn_of_workers() {
    static bool warned = false;
    const int workers = planned_workers(), cores = usable_cores();
    if (workers <= cores || state.options.cpus > 0 || warned) return;
    warned = true;
    std::fprintf(stderr,
                 "nnlua: warning: NNLUA_CPUS=%d asks for more workers than the %d core%s that this "
                 "process may use; they take turns, which is slower\n",
                 workers, cores, cores == 1 ? "" : "s");
}

}  // namespace

void start() {
    if (state.running) return;
    if (const char* scheduler = std::getenv("STARPU_SCHED")) check_scheduler(scheduler);
    warn_of_workers();
    start_watchdog();
    check_devices(state.options);
    prepare_environment(state.options);
    const std::string scheduler = scheduler_for(state.options);
    blas::load();  // before there are workers, since it changes the environment for a moment
    if (!memory_info().budget) set_budget(0);
    starpu_malloc_set_hooks(arena_malloc_hook, arena_free_hook);
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.catch_signals = 0;
    conf.ncpus = planned_workers();
    conf.ncuda = gpus_for(state.options) == 0 ? 0 : state.options.gpus;  // -1: all
    conf.sched_policy_name = scheduler.c_str();
    if (conf.ncuda != 0) pin_host_memory();
    // Signals belong to the main thread: workers inherit a mask that blocks them.
    sigset_t signals, before;
    sigemptyset(&signals);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    const int status = starpu_init(&conf);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (status != 0)
        fail(
            "StarPU does not start (%s); nnlua --version shows what was built, STARPU_SILENT=0 "
            "what StarPU says",
            std::strerror(-status));
    try {
        start_gpus();
        start_costs();
    } catch (...) {
        starpu_shutdown();
        set_pinning({});
        throw;
    }
    state.running = true;
    state.paused = false;
    ++state.number;
}

void shutdown() {
    if (!state.running) return;
    ensure_awake();
    wait_for_the_end();
    enable_profile(false);
    drop_handles();
    stop_gpus();
    state.running = false;
    starpu_shutdown();
    set_pinning({});
}

bool running() { return state.running; }
uint32_t runtime_number() { return state.number; }

int cpu_workers() {
    start();
    return int(starpu_cpu_worker_get_count());
}

namespace {

// How many workers of the same GPU come before this one.
int stream_of(int worker) {
    int before = 0;
    for (int w = 0; w < worker; ++w)
        before += starpu_worker_get_type(w) == STARPU_CUDA_WORKER &&
                  starpu_worker_get_devid(w) == starpu_worker_get_devid(worker);
    return before;
}

}  // namespace

int gpus() {
    start();
    return int(first_streams().size());
}

std::vector<int> first_streams() {
    std::vector<int> out;
    for (int w = 0; w < int(starpu_worker_get_count()); ++w)
        if (starpu_worker_get_type(w) == STARPU_CUDA_WORKER && stream_of(w) == 0) out.push_back(w);
    return out;
}

std::string gpu_name(int worker) {
    const int device = starpu_worker_get_devid(worker);
    if (starpu_cuda_worker_get_count() == first_streams().size()) return format("GPU %d", device);
    return format("GPU %d, stream %d", device, stream_of(worker) + 1);
}

double own_seconds() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

std::string starpu_version() {
    int major, minor, release;
    starpu_get_version(&major, &minor, &release);
    return format("%d.%d.%d", major, minor, release);
}

void check_pending() {
    if (state.has_error) {
        ensure_awake();
        wait_for_the_end();
        forget_failed_values();
        std::lock_guard lock(state.error_mutex);
        const std::string message = std::move(state.error);
        state.error.clear();
        state.has_error = false;
        throw Error(message);
    }
    check_interrupt();
}

void report_kernel_error(const TaskArg& arg, const std::string& message) {
    Dims extent(arg.extent, arg.extent + arg.rank);
    std::lock_guard lock(state.error_mutex);
    if (state.has_error) return;  // the first one is the cause
    const std::string where =
        arg.rank ? format(" (kernel %s, %s, tile %d of shape %s)", arg.kernel->name.c_str(),
                          dtype_name(arg.dtype), arg.tile + 1, to_string(extent).c_str())
                 : format(" (kernel %s, %s)", arg.kernel->name.c_str(), dtype_name(arg.dtype));
    state.error = std::string(arg.op) + ": " + message + where;
    state.has_error = true;
}

void request_interrupt() { interrupted = 1; }
bool interrupt_requested() { return interrupted != 0; }
bool clear_interrupt() {
    const bool was = interrupted != 0;
    interrupted = 0;
    return was;
}
bool interrupts_deferred() { return state.interrupts_deferred; }
void defer_interrupts(bool deferred) { state.interrupts_deferred = deferred; }
InterruptsDeferred::InterruptsDeferred() { ++state.undivided; }
InterruptsDeferred::~InterruptsDeferred() { --state.undivided; }

int64_t unfinished_tasks() { return state.running ? starpu_task_nsubmitted() : 0; }

void wait_done() {
    if (!state.running) return;
    ensure_awake();
    wait_until([] { return starpu_task_nsubmitted() == 0; });
}

void wait_all() {
    if (!state.running) return;
    wait_done();
    check_pending();
}

void wait_below(int64_t tasks) {
    if (starpu_task_nsubmitted() > tasks)
        wait_until([=] { return starpu_task_nsubmitted() <= tasks; });
}

void wait_for(const std::function<bool()>& done) {
    if (!done()) wait_until(done);
}

void wait_readable(Tile& tile, void (*use)(void*, void*), void* context) {
    acquire(tile, STARPU_R, use, context);
}
void wait_writable(Tile& tile, void (*use)(void*, void*), void* context) {
    acquire(tile, STARPU_W, use, context);
}

void idle() {
    if (!state.running || state.paused) return;
    wait_until([] { return starpu_task_nsubmitted() == 0; });
    starpu_pause();
    state.paused = true;
}

void ensure_awake() {
    if (!state.paused) return;
    starpu_resume();
    state.paused = false;
}

void allow_tf32(bool allowed) { state.tf32 = allowed; }
bool tf32_allowed() { return state.tf32; }
void choose_attention(int32_t backend) { state.attention = backend; }
int32_t attention_choice() { return state.attention; }

void place_tasks(uint32_t where) {
    if (where == STARPU_CUDA && gpus() == 0)
        fail("tasks cannot be placed on GPUs: there is none that this build can use");
    if (where == STARPU_CPU && cpu_workers() == 0)
        fail("tasks cannot be placed on CPU cores: there is no CPU worker");
    state.place = where;
}
uint32_t tasks_place() { return state.place; }

RuntimeStats runtime_stats() { return state.stats; }
RuntimeStats& mutable_stats() { return state.stats; }

}  // namespace nn
