// Time, FLOPs and bytes by kernel, measured on the workers while profiling is on.
#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "engine/runtime.h"

namespace nn {
namespace {

std::mutex mutex;
std::map<const Kernel*, KernelStat> stats;
std::atomic<bool> enabled{false};

}  // namespace

void enable_profile(bool on) {
    std::lock_guard lock(mutex);
    stats.clear();
    enabled = on;
}

bool profiling() { return enabled.load(std::memory_order_relaxed); }

void add_kernel_time(const Kernel* kernel, double seconds, double flops, double bytes) {
    std::lock_guard lock(mutex);
    KernelStat& stat = stats[kernel];
    ++stat.calls;
    stat.seconds += seconds;
    stat.flops += flops;
    stat.bytes += bytes;
}

KernelStat kernel_stat(const Kernel* kernel) {
    std::lock_guard lock(mutex);
    const auto it = stats.find(kernel);
    return it == stats.end() ? KernelStat{} : it->second;
}

}  // namespace nn
