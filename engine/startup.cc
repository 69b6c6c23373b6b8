#include "engine/startup.h"

#include <sched.h>
#include <starpu.h>
#if defined(NN_CUDA)
#include <cuda_runtime_api.h>
#endif

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "engine/error.h"

namespace nn {
namespace {

void set_default_env(const char* name, const std::string& value) { setenv(name, value.c_str(), 0); }

// A variable that an option sets (0: not given). What an earlier start set is taken back; what the
// user set is not.
class OptionEnv {
public:
    explicit OptionEnv(const char* name) : name_(name) {}
    void set(int64_t value) {
        if (value > 0)
            setenv(name_, std::to_string(value).c_str(), 1);
        else if (ours_)
            unsetenv(name_);
        ours_ = value > 0;
    }

private:
    const char* const name_;
    bool ours_ = false;
};

std::string cache_folder() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const std::string base = cache && *cache ? cache
                             : home && *home ? std::string(home) + "/.cache"
                                             : "/tmp";
    return base + "/nnlua/starpu";
}

}  // namespace

void prepare_environment(const RuntimeOptions& options) {
    set_default_env("STARPU_SILENT", "1");
    set_default_env("STARPU_FXT_TRACE", "0");
    set_default_env("STARPU_LIMIT_CPU_MEM", "0");  // the budget is ours (engine/memory.h)
    set_default_env("STARPU_WORKERS_GETBIND", "1");
    static OptionEnv memory("STARPU_LIMIT_CUDA_MEM"), streams("STARPU_NWORKER_PER_CUDA");
    memory.set(options.gpu_memory >> 20);
    streams.set(options.streams);
    std::error_code ignored;
    std::filesystem::create_directories(cache_folder(), ignored);
    set_default_env("STARPU_PERF_MODEL_DIR", cache_folder());
}

int usable_gpus() {
#if defined(NN_CUDA)
    static const int gpus = [] {
        int count = 0;
        return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
    }();
    return gpus;
#else
    return 0;
#endif
}

int gpus_for(const RuntimeOptions& options) {
    return options.gpus < 0 ? usable_gpus() : options.gpus;
}

// On CPUs one queue by priority. StarPU 1.4.10's work stealing (lws) now and then never runs what
// an idle worker was left to fetch: seen within 10,000 small tasks, with one worker too.
std::string scheduler_for(const RuntimeOptions& options) {
    if (!options.scheduler.empty()) return options.scheduler;
    return gpus_for(options) > 0 ? "dmdas" : "prio";
}

void check_devices(const RuntimeOptions& options) {
    if (options.gpus > usable_gpus())
        fail(
            "nn.devices asks for %d GPUs; this machine and build have %d (nnlua --health says why)",
            options.gpus, usable_gpus());
}

// StarPU itself would only warn, and take its own default.
void check_scheduler(const std::string& name) {
    if (name.empty() || std::getenv("STARPU_SCHED_LIB")) return;
    std::string known;
    for (starpu_sched_policy** policy = starpu_sched_get_predefined_policies(); *policy; ++policy) {
        const std::string there = (*policy)->policy_name;
        if (name == there) return;
        if (there.rfind("modular-", 0) != 0) known += (known.empty() ? "" : ", ") + there;
    }
    fail("there is no scheduler '%s'; there are %s, and StarPU's modular ones", name.c_str(),
         known.c_str());
}

// Cores that this process may run on: of hardware threads that share one, one counts. A kernel
// fills a core's vector units by itself.
int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set)) continue;
        std::ifstream file(
            format("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu));
        std::string siblings;
        cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
    }
    return int(cores.size());
}

}  // namespace nn
