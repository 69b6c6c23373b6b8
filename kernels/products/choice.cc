// The choice between the implementations of products, and the measurement behind it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <vector>

#include "kernels/blas.h"
#include "kernels/kept_choices.h"
#include "kernels/products/onednn.h"

namespace nn::products {
namespace {

namespace fs = std::filesystem;

constexpr const char* names[ways] = {"openblas", "onednn", "loops", "matmul"};
constexpr const char* titles[ways] = {"OpenBLAS", "oneDNN", "own loops", "oneDNN matmul"};
constexpr Way others[] = {Way::onednn, Way::loops, Way::matmul};  // than OpenBLAS

std::string value_of(const char* variable) {
    const char* value = std::getenv(variable);
    return value ? value : "";
}

#if defined(__x86_64__)
bool has_bf16_units() { return __builtin_cpu_supports("avx512bf16"); }
#else
bool has_bf16_units() { return false; }
#endif

// f32, as gemm(). OpenBLAS computes what another way does not, or what is too small for it.
void multiply(Way way, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
              const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
              int64_t ldc) {
    constexpr int64_t without_packing = 1'000'000;  // in OpenBLAS
    if (way == Way::matmul && large(m, n, k) && alpha == 1 && (beta == 0 || beta == 1))
        return onednn::matmul(trans_a, trans_b, m, n, k, beta == 1, a, lda, b, ldb, c, ldc);
    const bool onednn = way == Way::onednn && m * n * k > without_packing;
    (onednn ? onednn::gemm : blas::gemm<float>)(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb,
                                                beta, c, ldc);
}

MultiplyFn multiplier(Way way) {
    switch (way) {
        case Way::onednn: return onednn::multiply;
        case Way::matmul: return onednn::multiply_by_matmul;
        case Way::loops: return multiply_by_loops;
        default: return nullptr;
    }
}

// GFLOP/s of one thread with each implementation; 0: not usable.
struct Rates {
    std::array<double, ways> f32{}, bf16{};
};

// A product of the sizes of a layer of GPT-2, whose operands fill the L2 cache.
class Measurement {
public:
    Rates run() {
        Rates out;
        for (int round = 0; round < rounds; ++round)  // in turns, as other programs may disturb
            for (int way = 0; way < ways; ++way) {
                update(out.f32, Way(way), false);
                update(out.bf16, Way(way), true);
            }
        return out;
    }

private:
    void update(std::array<double, ways>& best, Way way, bool bf16) {
        if (!why_unusable(way, bf16).empty()) return;
        if (bf16 && way == Way::openblas) return;  // chosen only if nothing else is usable
        const auto start = std::chrono::steady_clock::now();
        bf16 ? multiply_bf16(way) : multiply_f32(way);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        double& rate = best[size_t(way)];
        rate = std::max(rate, 2e-9 * double(m * n * k) / std::max(seconds.count(), 1e-9));
    }
    void multiply_f32(Way way) {
        multiply(way, false, true, m, n, k, 1, a.data(), k, b.data(), k, 0, c.data(), n);
    }
    void multiply_bf16(Way way) {
        const Operands o{false, true, m, n, k, a16.data(), k, b16.data(), k};
        const Epilogue epilogue{nullptr, nullptr, keep_sums};
        multiplier(way)(o, epilogue);
    }

    static constexpr int rounds = 4;
    static constexpr int64_t m = 256, n = 768, k = 768;
    std::vector<float> a = std::vector<float>(size_t(m * k), 1.0f),
                       b = std::vector<float>(size_t(n * k), 1.0f),
                       c = std::vector<float>(size_t(m * n));
    std::vector<uint16_t> a16 = std::vector<uint16_t>(size_t(m * k), 0x3F80),
                          b16 = std::vector<uint16_t>(size_t(n * k), 0x3F80);
};

// Empty if there is no folder for caches. Each key has a file of its own, so
// that processes with other libraries do not replace it.
fs::path file_of_rates(const std::string& key) {
    const fs::path folder = cache_folder();
    char name[40];
    std::snprintf(name, sizeof name, "products-%016zx", std::hash<std::string>()(key));
    return folder.empty() ? fs::path() : folder / name;
}

bool read_rates(const fs::path& path, const std::string& key, Rates* out) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line) || line != key) return false;
    for (auto* rates : {&out->f32, &out->bf16})
        for (double& rate : *rates)
            if (!(file >> rate) || !(rate >= 0)) return false;
    return true;
}

// Replaces the file at once, so that a reader sees all of it. Without a writable folder each
// process measures.
void write_rates(const fs::path& path, const std::string& key, const Rates& rates) {
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    const fs::path part = path.native() + "." + std::to_string(getpid());
    std::ofstream file(part);
    file << key << '\n';
    for (const auto* list : {&rates.f32, &rates.bf16})
        for (double rate : *list) file << rate << ' ';
    file << '\n';
    file.close();
    if (file) fs::rename(part, path, ignored);
    if (!file || ignored) fs::remove(part, ignored);
}

Rates rates_of_machine() {
    Rates rates;
    const std::string key = "products 4, " + processor_and_libraries();
    const fs::path path = file_of_rates(key);
    if (!path.empty() && read_rates(path, key, &rates)) return rates;
    rates = Measurement().run();
    if (path.empty()) return rates;
    write_rates(path, key, rates);
    Rates kept;  // of another process, if that was later: all choose alike
    return read_rates(path, key, &kept) ? kept : rates;
}

// The fastest. A library that is at least nearly as fast as another way is preferred to it, so that
// noise of the measurement seldom changes the choice, and with it the last bits of results.
Way fastest(const std::array<double, ways>& rates) {
    constexpr double nearly = 0.95;
    Way best = Way::openblas;
    for (Way way : others)
        if (rates[size_t(way)] * (way == Way::onednn ? 1 / nearly : nearly) > rates[size_t(best)])
            best = way;
    return best;
}

std::string listed(const char* dtype, const std::array<double, ways>& rates) {
    std::string out;
    for (int way = 0; way < ways; ++way) {
        if (rates[size_t(way)] == 0) continue;
        char text[64];
        std::snprintf(text, sizeof text, "%s%s %.0f", out.empty() ? "" : ", ", titles[way],
                      rates[size_t(way)]);
        out += text;
    }
    return out.empty() ? "" : std::string(dtype) + " " + out;
}

Choice measured_choice() {
    Rates rates = rates_of_machine();
    for (Way way : others) {  // the file may say anything
        if (!why_unusable(way, false).empty()) rates.f32[size_t(way)] = 0;
        if (!why_unusable(way, true).empty()) rates.bf16[size_t(way)] = 0;
    }
    const std::string f32 = listed("f32", rates.f32), bf16 = listed("bf16", rates.bf16);
    const Way best_f32 = fastest(rates.f32), best_bf16 = fastest(rates.bf16);
    return {best_f32, best_bf16,
            "measured, GFLOP/s of a core: " + f32 + (bf16.empty() ? "" : "; " + bf16),
            rates.f32[size_t(best_f32)], rates.bf16[size_t(best_bf16)]};
}

Choice make_choice() {
    const std::string wanted = value_of("NNLUA_PRODUCTS");
    if (wanted.empty() || wanted == "auto") {
        if (const std::string isa = value_of("NNLUA_ISA"); !isa.empty())
            return {Way::openblas, Way::openblas, "NNLUA_ISA=" + isa, 0, 0};
        return measured_choice();
    }
    const auto* const name = std::find(names, names + ways, wanted);
    if (name == names + ways)
        throw std::runtime_error("NNLUA_PRODUCTS is '" + wanted +
                                 "'; it can be auto, openblas, onednn, matmul or loops");
    const Way way = Way(name - names);
    const std::string problem = why_unusable(way, true);
    if (!problem.empty() && !why_unusable(way, false).empty())
        throw std::runtime_error("NNLUA_PRODUCTS is '" + wanted +
                                 "', but this is not possible: " + problem);
    const auto or_openblas = [way](bool bf16) {
        return why_unusable(way, bf16).empty() ? way : Way::openblas;
    };
    return {or_openblas(false), or_openblas(true), "NNLUA_PRODUCTS=" + wanted, 0, 0};
}

Choice& chosen() {
    static Choice made = make_choice();
    return made;
}

}  // namespace

std::string processor_and_libraries() {
    std::string out;
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line) && !line.empty();)
        for (const char* field : {"model name", "cpu family", "model\t", "stepping"})
            if (line.rfind(field, 0) == 0) out += line.substr(line.find(':') + 2) + ", ";
    out += blas::description();
    if (onednn::why_unusable().empty()) out += ", " + onednn::version();
    return out;
}

const char* way_name(Way way) { return names[int(way)]; }

const Choice& choice() { return chosen(); }
void choose(const Choice& choice) { chosen() = choice; }

std::string why_unusable(Way way, bool bf16) {
    if (way == Way::openblas) return "";
    if (bf16 && !has_bf16_units()) return "the processor has no AVX-512 BF16";
    if (way == Way::onednn) return onednn::why_unusable();
    if (way == Way::matmul) return onednn::why_matmul_unusable(bf16);
    if (!bf16) return "own loops multiply bf16 only";
    return loops_built() ? "" : "the program was built without them";
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
    multiply(choice().f32, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

MultiplyFn bf16_multiply() { return multiplier(choice().bf16); }

std::string description() {
    const Choice& c = choice();
    return std::string("f32 ") + titles[int(c.f32)] + ", bf16 " + titles[int(c.bf16)] + " (" +
           c.reason + ")";
}

}  // namespace nn::products
