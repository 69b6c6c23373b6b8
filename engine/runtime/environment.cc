#include "engine/runtime/environment.h"

#include <dlfcn.h>
#include <starpu.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/user_cache.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"
#include "engine/residency/tier_settings.h"

namespace nn {
namespace {

namespace fs = std::filesystem;

// Schedulers of StarPU 1.4.10 that cannot run every program, and why.
struct Unusable {
    const char *name, *why;
};
constexpr Unusable unusable_schedulers[] = {
    {"graph_test", "it runs no task before the program has ended"},
    {"lws", "it sometimes never runs a task"},
    {"pheft", "it needs a performance model of every task"},
    {"modular-heteroprio-heft", "it needs a performance model of every task"},
};

const char* why_unusable(const std::string& scheduler) {
    for (const Unusable& u : unusable_schedulers)
        if (scheduler == u.name) return u.why;
    return nullptr;
}

// StarPU itself would only warn and use its own default.
void check_scheduler_library(const char* path) {
    if (void* library = dlopen(path, RTLD_NOW))
        dlclose(library);
    else
        fail("STARPU_SCHED_LIB is '%s', which cannot be loaded: %s", path, dlerror());
}

// Creates StarPU's folders in `base`; false if files cannot be written there.
bool create_model_folders(const fs::path& base) {
    constexpr size_t longest = 200;  // StarPU cuts longer names
    if (base.native().size() > longest) return false;
    for (const char* part : {"bus", "codelets", "debug"}) {
        std::error_code ignored;
        fs::create_directories(base / part, ignored);
        if (access((base / part).c_str(), R_OK | W_OK | X_OK) != 0) return false;
    }
    return true;
}

// A folder of this user alone, since others may write to the folder of temporary files too.
bool create_own_folder(const fs::path& path) {
    mkdir(path.c_str(), 0700);
    struct stat status;
    return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == geteuid();
}

// The folder of StarPU's performance models: in the user's cache, or without a writable home among
// the temporary files.
std::string model_folder() {
    const std::string cache = user_cache();
    const fs::path first = fs::path(cache) / "starpu",
                   own = fs::path(value_or("TMPDIR", "/tmp")) / format("nnlua-%u", geteuid());
    if (!cache.empty() && create_model_folders(first)) return first;
    if (create_own_folder(own) && create_model_folders(own / "starpu")) return own / "starpu";
    const std::string tried = cache.empty() ? "" : format("'%s' or ", first.c_str());
    fail(
        "nnlua needs a folder for StarPU's files, and cannot write to %s'%s'; set XDG_CACHE_HOME "
        "to a writable folder",
        tried.c_str(), own.c_str());
}

void choose_model_folder() {
    static std::string ours;  // the value that an earlier start has set
    const std::string chosen = value_or("STARPU_PERF_MODEL_DIR", "");
    if (chosen.empty() || chosen == ours) {
        ours = model_folder();
        setenv("STARPU_PERF_MODEL_DIR", ours.c_str(), 1);
    } else if (!create_model_folders(chosen)) {
        fail(
            "STARPU_PERF_MODEL_DIR is '%s', where nnlua cannot write; unset it, or give a writable "
            "folder with a name of at most 200 characters",
            chosen.c_str());
    }
}

// Values that StarPU accepts, but with which no program can run.
void check_variables() {
    for (const char* name : {"STARPU_NCPU", "STARPU_NCPUS"}) {
        const char* value = std::getenv(name);
        if (value && std::strtol(value, nullptr, 10) <= 0)
            fail("%s is '%s'; at least one CPU worker is needed (NNLUA_CPUS sets their number)",
                 name, value);
    }
    const char* disabled = std::getenv("STARPU_DISABLE_KERNELS");
    if (disabled && std::strtol(disabled, nullptr, 10) != 0)
        fail("STARPU_DISABLE_KERNELS is '%s', so StarPU would run no kernel; unset it", disabled);
}

void check_threads(int needed) {
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future().share();
    std::vector<std::thread> threads;
    threads.reserve(size_t(needed));
    try {
        while (int(threads.size()) < needed) threads.emplace_back([ended] { ended.wait(); });
    } catch (const std::exception&) {
    }
    const int created = int(threads.size());
    end.set_value();
    for (std::thread& thread : threads) thread.join();
    if (created < needed)
        fail(
            "this process can create only %d of the %d threads that it needs; raise its "
            "limit of processes (ulimit -u, pids.max of the control group) or of memory (ulimit "
            "-v), or start fewer workers (NNLUA_CPUS)",
            created, needed);
}

// The variables that the user has set for StarPU, as text.
std::string users_variables() {
    std::string out;
    for (char** variable = environ; *variable; ++variable)
        if (std::strncmp(*variable, "STARPU_", 7) == 0)
            out += format("%s%s", out.empty() ? "" : " ", *variable);
    return out;
}

std::string start_problem;  // what on_crash writes

void on_crash(int) {
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, start_problem.data(), start_problem.size());
    _exit(1);
}

constexpr int crash_signals[] = {SIGABRT, SIGSEGV, SIGFPE};
struct sigaction earlier_actions[std::size(crash_signals)];

}  // namespace

void check_scheduler(const std::string& name) {
    if (name.empty() || std::getenv("STARPU_SCHED_LIB")) return;
    const char* why = why_unusable(name);
    std::string known;
    for (starpu_sched_policy** policy = starpu_sched_get_predefined_policies(); *policy; ++policy) {
        const std::string policy_name = (*policy)->policy_name;
        if (name == policy_name && !why) return;
        if (policy_name.rfind("modular-", 0) != 0 && !why_unusable(policy_name))
            known += (known.empty() ? "" : ", ") + policy_name;
    }
    if (why)
        fail("scheduler '%s' cannot be used: %s; use one of %s", name.c_str(), why, known.c_str());
    fail("unknown scheduler '%s'; known: %s, and StarPU's modular ones", name.c_str(),
         known.c_str());
}

void set_option(const char* name, int64_t value, bool& ours) {
    if (value > 0)
        setenv(name, std::to_string(value).c_str(), 1);
    else if (ours)
        unsetenv(name);
    ours = value > 0;
}

void prepare_environment(int threads) {
    static const std::string given_by_user = users_variables();
    start_problem = "nnlua: StarPU cannot start; its message, if any, is above";
    if (!given_by_user.empty())
        start_problem += "; unset the variables that change how it starts: " + given_by_user;
    start_problem += "\n";
    if (const char* library = std::getenv("STARPU_SCHED_LIB")) check_scheduler_library(library);
    if (value_or("STARPU_SCHED", "").empty()) unsetenv("STARPU_SCHED");  // "" would select lws
    check_scheduler(value_or("STARPU_SCHED", ""));
    check_variables();
    setenv("STARPU_SILENT", "1", 0);
    setenv("STARPU_FXT_TRACE", "0", 0);
    setenv("STARPU_WORKERS_GETBIND", "1", 0);
    // The budget is ours (engine/memory/admission.h). StarPU would wait for memory forever.
    setenv("STARPU_LIMIT_CPU_MEM", "0", 1);
    for (const char* limit : {"STARPU_LIMIT_CPU_NUMA_MEM", "STARPU_LIMIT_CPU_NUMA_0_MEM"})
        unsetenv(limit);
    if (ranks().several()) {
        setenv("STARPU_MPI_NOBIND", "1", 0);        // its thread shares the workers' cores
        setenv("STARPU_MPI_IDLE_SLEEP", "100", 0);  // microseconds (.setup/starpu.sh)
        // By default, ten tiles leave at once. With tiers, a receiver may have no slot for these
        // before it gets another one. Tiers of a GPU are chosen later.
        if (tiers_were_chosen() || host().count(Device::cuda) > 0)
            setenv("STARPU_MPI_NDETACHED_SEND", "0", 1);
    }
    choose_model_folder();
    check_threads(threads);
}

StartGuard::StartGuard() {
    std::fflush(nullptr);
    struct sigaction action = {};
    action.sa_handler = on_crash;
    for (size_t i = 0; i < std::size(crash_signals); ++i)
        sigaction(crash_signals[i], &action, &earlier_actions[i]);
}

StartGuard::~StartGuard() {
    for (size_t i = 0; i < std::size(crash_signals); ++i)
        sigaction(crash_signals[i], &earlier_actions[i], nullptr);
}

}  // namespace nn
