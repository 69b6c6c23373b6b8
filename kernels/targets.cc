// The targets that kernels are compiled for (their flags are in CMakeLists.txt), and which of them
// this machine can run.
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "kernels/kernel.h"

namespace nn {
namespace {

std::vector<const Target*>& all_targets() {
    static std::vector<const Target*> targets;
    return targets;
}

const Target baseline("baseline", Device::cpu, 0, [] { return true; });
// The engine checks for GPUs.
const Target cuda("cuda", Device::cuda, 0, [] { return true; });

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
const Target avx2("avx2", Device::cpu, 1, has_avx2, __builtin_cpu_is("amd") ? "Zen" : "Haswell");
// OpenBLAS's sgemm for Cooperlake is that for SkylakeX (measured equal); only its bf16 differs.
const Target avx512("avx512", Device::cpu, 2, has_avx512, "SkylakeX");
#endif

}  // namespace

Target::Target(const char* name_, Device device_, int preference_, bool (*usable_)(),
               const char* openblas_)
    : name(name_), device(device_), preference(preference_), usable(usable_), openblas(openblas_) {
    all_targets().push_back(this);
}

const Target* find_target(const std::string& name) {
    for (const Target* target : all_targets())
        if (target->name == name) return target;
    return nullptr;
}

std::vector<const Target*> usable_targets(Device device) {
    std::vector<const Target*> out;
    for (const Target* target : all_targets())
        if (target->device == device && target->usable()) out.push_back(target);
    std::sort(out.begin(), out.end(),
              [](const Target* a, const Target* b) { return a->preference < b->preference; });
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
