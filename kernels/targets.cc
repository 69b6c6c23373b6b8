// The targets that kernels are compiled for (their flags are in CMakeLists.txt), and which of them
// this machine can run.
#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "kernels/kernel.h"

namespace nn {
namespace {

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
const char* avx2_core() {
    __builtin_cpu_init();  // the first call may come from a static initializer of another library
    return __builtin_cpu_is("amd") ? "Zen" : "Haswell";
}
#endif

// Of the usable targets of a device, kernels run the last one.
std::deque<Target>& all_targets() {
    static std::deque<Target> targets = {
        {"baseline", Device::cpu, always},
#if defined(__x86_64__)
        {"avx2", Device::cpu, has_avx2, avx2_core()},
        // OpenBLAS's sgemm for Cooperlake is the one for SkylakeX (measured equal).
        {"avx512", Device::cpu, has_avx512, "SkylakeX"},
#endif
        {"cuda", Device::cuda, always},  // the engine finds the GPUs
    };
    return targets;
}

}  // namespace

const Target& add_target(const Target& target) { return all_targets().emplace_back(target); }

const Target* find_target(const std::string& name) {
    for (const Target& target : all_targets())
        if (target.name == name) return &target;
    return nullptr;
}

std::vector<const Target*> usable_targets(Device device) {
    std::vector<const Target*> out;
    for (const Target& target : all_targets())
        if (target.device == device && target.usable()) out.push_back(&target);
    const char* wanted = std::getenv("NNLUA_ISA");
    if (device != Device::cpu || !wanted || !*wanted) return out;
    std::string names;
    for (size_t i = 0; i < out.size(); ++i) {
        names += (i ? ", " : "") + std::string(out[i]->name);
        if (out[i]->name == std::string(wanted)) return out.resize(i + 1), out;
    }
    throw std::runtime_error("NNLUA_ISA is '" + std::string(wanted) + "'; this machine has " +
                             names);
}

const Target& cpu_target() {
    static const Target* const best = usable_targets(Device::cpu).back();
    return *best;
}

}  // namespace nn
