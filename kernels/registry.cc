// The list of kernels, filled by static registrars in every kernel file, and the choice of the
// variant for this CPU.
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>

#include "kernels/kernel.h"

namespace nn {
namespace {

std::map<std::string, Kernel>& registry() {
    static std::map<std::string, Kernel> kernels;
    return kernels;
}

std::vector<OperandDecl> parse_operands(const char* text) {
    std::vector<OperandDecl> out;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const size_t colon = word.find(':');
        std::string access = word.substr(colon + 1);
        const bool optional = access.back() == '?';
        if (optional) access.pop_back();
        const Mode mode = access == "r"   ? Mode::read
                          : access == "w" ? Mode::write
                                          : Mode::read_write;
        out.push_back({word.substr(0, colon), mode, optional});
    }
    return out;
}

Kernel& declare(const char* name, const char* operands, const char* params_type,
                size_t params_size) {
    Kernel& kernel = registry()[name];
    if (kernel.name.empty()) {
        kernel.name = name;
        kernel.operands = parse_operands(operands);
        kernel.params_type = params_type;
        kernel.params_size = params_size;
    } else if (kernel.params_type != params_type || kernel.operands != parse_operands(operands)) {
        std::fprintf(stderr, "nnlua: kernel %s is declared in two ways\n", name);
        std::abort();  // a mistake in the build, found by the first start
    }
    return kernel;
}

}  // namespace

KernelRegistrar::KernelRegistrar(const char* name, Isa isa, const char* operands,
                                 const char* params_type, size_t params_size, KernelFn fn) {
    declare(name, operands, params_type, params_size).by_isa[int(isa)] = fn;
}

KernelRegistrar::KernelRegistrar(const char* name, const char* operands, const char* params_type,
                                 size_t params_size, KernelFn fn) {
    declare(name, operands, params_type, params_size).cuda = fn;
}

const char* isa_name(Isa isa) {
    static const char* const names[] = {"baseline", "avx2", "avx512"};
    return names[int(isa)];
}

Isa machine_isa() {
    static const Isa isa = [] {
        Isa best = Isa::baseline;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) best = Isa::avx2;
        if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            best = Isa::avx512;
#endif
        const char* wanted = std::getenv("NNLUA_ISA");
        if (!wanted || !*wanted) return best;
        for (int i = 0; i <= int(best); ++i)
            if (!std::strcmp(wanted, isa_name(Isa(i)))) return Isa(i);
        throw std::runtime_error("NNLUA_ISA is '" + std::string(wanted) +
                                 "'; this machine has baseline to " + isa_name(best));
    }();
    return isa;
}

const Kernel* find_kernel(const std::string& name) {
    const auto it = registry().find(name);
    if (it == registry().end()) return nullptr;
    Kernel& kernel = it->second;
    for (int isa = int(machine_isa()); !kernel.cpu && isa >= 0; --isa)
        kernel.cpu = kernel.by_isa[isa];
    return &kernel;
}

std::vector<const Kernel*> all_kernels() {
    std::vector<const Kernel*> out;
    for (const auto& [name, kernel] : registry()) out.push_back(find_kernel(name));
    return out;
}

void KernelCall::fail(const char* format, ...) const {
    if (!error || !error->empty()) return;
    char text[256];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *error = text;
}

size_t dtype_size(Dtype dtype) {
    static const size_t sizes[] = {4, 8, 2, 4, 8, 1, 1};
    return sizes[int(dtype)];
}

bool representable(double value, Dtype dtype) {
    const auto whole_within = [value](double low, double high) {
        return value >= low && value <= high && value == std::floor(value);
    };
    switch (dtype) {
        case Dtype::i32: return whole_within(-0x1p31, 0x1p31 - 1);
        case Dtype::i64: return whole_within(-0x1p63, 0x1p63 - 1024);
        case Dtype::u8: return whole_within(0, 255);
        case Dtype::boolean: return whole_within(0, 1);
        default: return true;
    }
}

const char* dtype_name(Dtype dtype) {
    static const char* const names[] = {"f32", "f64", "bf16", "i32", "i64", "u8", "bool"};
    return names[int(dtype)];
}

}  // namespace nn
