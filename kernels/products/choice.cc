// The choice between the implementations of products, and the measurement behind it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "kernels/blas.h"
#include "kernels/kept_choices.h"
#include "kernels/products/onednn.h"
#include "kernels/products/stopwatch.h"

namespace nn::products {
namespace {

constexpr const char* names[ways] = {"openblas", "onednn", "loops", "matmul"};
constexpr const char* titles[ways] = {"OpenBLAS", "oneDNN", "own loops", "oneDNN matmul"};

std::string value_of(const char* variable) {
    const char* value = std::getenv(variable);
    return value ? value : "";
}

#if defined(__x86_64__)
bool has_bf16_units() { return __builtin_cpu_supports("avx512bf16"); }
#else
bool has_bf16_units() { return false; }
#endif

// GFLOP/s of one thread with each implementation; 0: not usable.
struct Rates {
    std::array<double, ways> f32{}, bf16{};
};

// The products of layers: the result, the gradient of the input and that of the weight, for a layer
// of GPT-2 and the two of a small MLP. Libraries differ by up to a third in some of them, such as
// with rows that are a power of two apart.
constexpr Product products_of_layers[] = {
    {false, true, 256, 768, 768}, {false, false, 256, 768, 768}, {true, false, 768, 768, 256},
    {false, true, 384, 512, 128}, {false, false, 384, 128, 512}, {true, false, 512, 128, 384},
    {false, true, 384, 128, 512}, {false, false, 384, 512, 128}, {true, false, 128, 512, 384}};

// The geometric means of the rates of these products.
Rates measured_rates() {
    constexpr double root = 1.0 / double(std::size(products_of_layers));
    Stopwatch stopwatch;
    Rates out;
    out.f32.fill(1), out.bf16.fill(1);
    for (const bool bf16 : {false, true})
        for (const Product& product : products_of_layers) {
            const Seconds seconds = stopwatch.seconds(product, bf16, 4);
            for (size_t way = 0; way < ways; ++way)
                (bf16 ? out.bf16 : out.f32)[way] *=
                    seconds[way] > 0 ? std::pow(gflop(product) / seconds[way], root) : 0;
        }
    return out;
}

// In the user's cache. All processes choose alike, also those that start and measure at the same
// time: what was kept first counts.
Rates rates_of_machine() {
    KeptChoices kept("products 6, MFLOP/s, " + processor_and_libraries());
    std::optional<Rates> measured;
    Rates out;
    for (const bool bf16 : {false, true})
        for (size_t way = 0; way < ways; ++way) {
            const auto rate = [&](Rates& rates) -> double& {
                return (bf16 ? rates.bf16 : rates.f32)[way];
            };
            const auto measure = [&] {
                if (!measured) measured = measured_rates();
                return int(1e3 * rate(*measured));
            };
            const std::string name = std::string(bf16 ? "bf16-" : "f32-") + names[way];
            rate(out) = 1e-3 * kept.find(name, measure);
        }
    return out;
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

// The fastest that can be used: the file may say anything. To check matmul takes time, so only what
// would be chosen is checked.
Way fastest_usable(std::array<double, ways>& rates, bool bf16) {
    Way way = fastest(rates);
    for (; !why_unusable(way, bf16).empty(); way = fastest(rates)) rates[size_t(way)] = 0;
    return way;
}

Choice measured_choice() {
    Rates rates = rates_of_machine();
    const Way f32 = fastest_usable(rates.f32, false), bf16 = fastest_usable(rates.bf16, true);
    const std::string of_f32 = listed("f32", rates.f32), of_bf16 = listed("bf16", rates.bf16);
    return {f32,
            bf16,
            "measured, GFLOP/s of a core: " + of_f32 + (of_bf16.empty() ? "" : "; " + of_bf16),
            rates.f32[size_t(f32)],
            rates.bf16[size_t(bf16)],
            true};
}

Choice make_choice() {
    const std::string wanted = value_of("NNLUA_PRODUCTS");
    if (wanted.empty() || wanted == "auto") {
        if (const std::string isa = value_of("NNLUA_ISA"); !isa.empty())
            return {Way::openblas, Way::openblas, "NNLUA_ISA=" + isa};
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
    return {or_openblas(false), or_openblas(true), "NNLUA_PRODUCTS=" + wanted};
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

// OpenBLAS computes what another way does not, or what is too small for it.
void gemm(Way way, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
          const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
          int64_t ldc) {
    constexpr int64_t most_unpacked = 1'000'000;  // OpenBLAS does not pack so small operands
    if (way == Way::matmul && m * n * k >= least_for_matmul && alpha == 1 &&
        (beta == 0 || beta == 1))
        return onednn::matmul(trans_a, trans_b, m, n, k, beta == 1, a, lda, b, ldb, c, ldc);
    const bool onednn = way == Way::onednn && m * n * k > most_unpacked;
    (onednn ? onednn::gemm : blas::gemm<float>)(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb,
                                                beta, c, ldc);
}

MultiplyFn bf16_multiply(Way way) {
    switch (way) {
        case Way::onednn: return onednn::multiply;
        case Way::matmul: return onednn::multiply_by_matmul;
        case Way::loops: return multiply_by_loops;
        default: return nullptr;
    }
}

std::string description() {
    const Choice& c = choice();
    std::array<int, ways> shapes{};
    for (const auto& [name, way] : c.by_shape ? kept_ways() : std::map<std::string, int>())
        if (way < ways) ++shapes[size_t(way)];
    std::string counts;
    for (size_t way = 0; way < ways; ++way)
        if (shapes[way] > 0)
            counts += (counts.empty() ? "; kept for shapes: " : ", ") + std::string(titles[way]) +
                      " " + std::to_string(shapes[way]);
    return std::string("f32 ") + titles[int(c.f32)] + ", bf16 " + titles[int(c.bf16)] + " (" +
           c.reason + counts + ")";
}

}  // namespace nn::products
