// Joins the declarations of kernels with their implementations at the first look-up.
#include "kernels/registry.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "kernels/implement.h"
#include "kernels/params.h"

namespace nn {
namespace {

template <class P> constexpr int tf32_offset() {
    if constexpr (requires(P p) { p.tf32; })
        return int(offsetof(P, tf32));
    else
        return -1;
}

std::vector<Declaration>& declarations() {
    static std::vector<Declaration> list = {
#define NN_KERNEL(name, bound, operands, params) \
    {#name, Bound::bound, operands, #params, sizeof(params), tf32_offset<params>()},
#include "kernels/kernels.inc"
    };
    return list;
}

std::vector<NamedImplementation>& implementations() {
    static std::vector<NamedImplementation> list;
    return list;
}

// By target and kernel, "cuda adamw".
std::map<std::string, KernelsFn>& implementations_of_many() {
    static std::map<std::string, KernelsFn> map;
    return map;
}

// Calls f(name) for each of "gemm, gemm_dgelu".
template <class F> void each_name(const char* names, F f) {
    std::istringstream words(names);
    for (std::string name; words >> std::ws && std::getline(words, name, ',');) f(name);
}

// All implementations, with those of many calls.
std::vector<NamedImplementation> joined_implementations() {
    std::vector<NamedImplementation> out = implementations();
    for (NamedImplementation& i : out) {
        const auto many = implementations_of_many().find(i.target + " " + i.kernel);
        if (many != implementations_of_many().end()) i.many = many->second;
    }
    return out;
}

std::vector<OperandDecl> parse_operands(const char* text) {
    std::vector<OperandDecl> out;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const size_t colon = word.find(':');
        const bool reads = word[colon + 1] == 'r', writes = word.find('w', colon) != word.npos;
        const Mode mode = !writes ? Mode::read : reads ? Mode::read_write : Mode::write;
        out.push_back({word.substr(0, colon), mode, word.back() == '?'});
    }
    return out;
}

const std::map<std::string, Kernel>& linked_kernels() {
    static const std::map<std::string, Kernel> kernels = [] {
        try {
            return link_kernels(declarations(), joined_implementations());
        } catch (const std::logic_error& e) {  // a mistake in the build
            std::fprintf(stderr, "nnlua: %s\n", e.what());
            std::abort();
        }
    }();
    return kernels;
}

void choose_implementations(Kernel& kernel) {
    for (int device = 0; device < int(Device::count); ++device)
        for (const Target* target : usable_targets(Device(device)))
            for (const Implementation& i : kernel.implementations)
                if (i.target == target)
                    kernel.best[device] = i.function, kernel.best_of_many[device] = i.many;
    if (!kernel.on(Device::cpu))
        throw std::logic_error("kernel " + kernel.name + " has no implementation for this CPU");
}

}  // namespace

std::map<std::string, Kernel> link_kernels(const std::vector<Declaration>& declared,
                                           const std::vector<NamedImplementation>& implemented) {
    std::map<std::string, Kernel> kernels;
    for (const Declaration& d : declared) {
        Kernel kernel{d.name,        d.bound,       parse_operands(d.operands),
                      d.params_type, d.params_size, d.tf32_offset};
        if (!kernels.emplace(d.name, std::move(kernel)).second)
            throw std::logic_error("kernel " + std::string(d.name) + " is declared twice");
    }
    for (const auto& [name, target_name, function, many] : implemented) {
        const auto kernel = kernels.find(name);
        const Target* target = find_target(target_name);
        const std::string what = "kernel " + name + " is implemented for " + target_name;
        if (kernel == kernels.end())
            throw std::logic_error(what + ", but kernels/kernels.inc does not declare it");
        if (!target) throw std::logic_error(what + ", but kernels/targets.cc has no such target");
        if (kernel->second.on(*target)) throw std::logic_error(what + " twice");
        kernel->second.implementations.push_back({target, function, many});
    }
    for (auto& [name, kernel] : kernels) choose_implementations(kernel);
    return kernels;
}

void declare_kernel(const Declaration& declaration) { declarations().push_back(declaration); }

ImplementationRegistrar::ImplementationRegistrar(const char* target, const char* names,
                                                 const KernelFn* functions) {
    each_name(names, [&](const std::string& name) {
        implementations().push_back({name, target, *functions++});
    });
}

ManyRegistrar::ManyRegistrar(const char* target, const char* names, const KernelsFn* functions) {
    const std::string before = "many_";
    each_name(names, [&](const std::string& name) {
        implementations_of_many()[target + (" " + name.substr(before.size()))] = *functions++;
    });
}

KernelFn Kernel::on(const Target& target) const {
    for (const Implementation& implementation : implementations)
        if (implementation.target == &target) return implementation.function;
    return nullptr;
}

KernelsFn Kernel::many_on(const Target& target) const {
    for (const Implementation& implementation : implementations)
        if (implementation.target == &target) return implementation.many;
    return nullptr;
}

bool Kernel::allows_tf32(const void* params) const {
    int32_t allowed = 0;
    if (tf32_offset >= 0)
        std::memcpy(&allowed, static_cast<const char*>(params) + tf32_offset, sizeof allowed);
    return allowed != 0;
}

const Kernel* find_kernel(const std::string& name) {
    const auto found = linked_kernels().find(name);
    return found == linked_kernels().end() ? nullptr : &found->second;
}

std::vector<const Kernel*> all_kernels() {
    std::vector<const Kernel*> out;
    for (const auto& [name, kernel] : linked_kernels()) out.push_back(&kernel);
    return out;
}

}  // namespace nn
