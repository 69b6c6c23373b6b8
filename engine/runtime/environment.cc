#include "engine/runtime/environment.h"

#include <starpu.h>

#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"

namespace nn {
namespace {

void set_default_env(const char* name, const std::string& value) { setenv(name, value.c_str(), 0); }

// A variable that an option sets (0: not given). A later start without the option removes what an
// earlier one set, and leaves what the user set.
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

void prepare_environment(int64_t gpu_memory, int streams) {
    set_default_env("STARPU_SILENT", "1");
    set_default_env("STARPU_FXT_TRACE", "0");
    set_default_env("STARPU_LIMIT_CPU_MEM", "0");  // the budget is ours (engine/memory/admission.h)
    set_default_env("STARPU_WORKERS_GETBIND", "1");
    static OptionEnv memory_limit("STARPU_LIMIT_CUDA_MEM"), workers("STARPU_NWORKER_PER_CUDA");
    memory_limit.set(gpu_memory >> 20);
    workers.set(streams);
    std::error_code ignored;
    std::filesystem::create_directories(cache_folder(), ignored);
    set_default_env("STARPU_PERF_MODEL_DIR", cache_folder());
}

// StarPU 1.4.10's work stealing (lws) now and then never runs a task that an idle worker was left
// to fetch: seen within 10,000 small tasks, with one worker too.
std::string default_scheduler(int gpus) { return gpus > 0 ? "dmdas" : "prio"; }

// StarPU itself would only warn and use its own default.
void check_scheduler(const std::string& name) {
    if (name.empty() || std::getenv("STARPU_SCHED_LIB")) return;
    std::string known;
    for (starpu_sched_policy** policy = starpu_sched_get_predefined_policies(); *policy; ++policy) {
        const std::string policy_name = (*policy)->policy_name;
        if (name == policy_name) return;
        if (policy_name.rfind("modular-", 0) != 0)
            known += (known.empty() ? "" : ", ") + policy_name;
    }
    fail("there is no scheduler '%s'; there are %s, and StarPU's modular ones", name.c_str(),
         known.c_str());
}

}  // namespace nn
