// The choice between the implementations for products of one shape.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <new>

#include "kernels/kept_choices.h"
#include "kernels/products/stopwatch.h"

namespace nn::products {
namespace {

constexpr int64_t tokens = 256;  // that are multiplied in measurements

// Libraries work on blocks of some hundred rows and columns. So the rates of longer sizes differ
// only by alignment, and by the distance of rows from a multiple of 4 kB, of which caches have
// several places. Scripts may multiply matrices of many sizes, such as lengths of texts.
int64_t measured_size(int64_t size, bool bf16) {
    const int64_t turn = bf16 ? 2048 : 1024;  // numbers in 4 kB
    const int64_t near = size <= 2048 ? size : turn + size % turn, step = near < 512 ? 16 : 64;
    return near % step == 0 ? near : near / step * step + (near % 8 == 0 ? 8 : 1);
}

Product product_of(const Widths& w) {
    if (w.trans_a) return {true, w.trans_b, w.first, w.second, tokens};
    return {false, w.trans_b, tokens, w.first, w.second};
}

KeptChoices& kept() {
    static KeptChoices instance("products by shape 3, " + processor_and_libraries());
    return instance;
}

// The number of the fastest way; -1 without memory to measure it.
int measure(const Widths& widths) try {
    constexpr double limit = 0.02;  // seconds of each way
    const Product product = product_of(widths);
    Stopwatch stopwatch;
    stopwatch.seconds(product, widths.bf16, 1);  // libraries allocate memory and compile
    const Seconds first = stopwatch.seconds(product, widths.bf16, 1);
    const double longest = *std::max_element(first.begin(), first.end());
    const int rounds = int(std::clamp(limit / std::max(longest, 1e-6), 3.0, 20.0));
    const Seconds best = stopwatch.seconds(product, widths.bf16, rounds);
    std::array<double, ways> rates{};
    for (size_t way = 0; way < ways; ++way)
        if (best[way] > 0) rates[way] = 1 / best[way];
    return int(fastest(rates));
} catch (const std::bad_alloc&) {
    return -1;
}

std::mutex mutex;
std::map<std::string, Way> known;

}  // namespace

std::optional<Widths> widths_of(bool bf16, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                int64_t k) {
    if (!choice().by_shape || (bf16 && choice().bf16 == Way::openblas)) return {};
    const int64_t first = measured_size(trans_a ? m : n, bf16),
                  second = measured_size(trans_a ? n : k, bf16);
    // Those that not all ways compute.
    if (tokens * first * second < least_for_matmul || (trans_a && trans_b)) return {};
    return Widths{bf16, trans_a, trans_b, first, second};
}

std::string name_of(const Widths& w) {
    char out[80];
    std::snprintf(out, sizeof out, "%s-%c%c-%lld-%lld", w.bf16 ? "bf16" : "f32",
                  w.trans_a ? 't' : 'n', w.trans_b ? 't' : 'n', (long long)w.first,
                  (long long)w.second);
    return out;
}

std::optional<Way> known_way(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto at = known.find(name);
    return at == known.end() ? std::nullopt : std::optional(at->second);
}

void set_way(const std::string& name, Way way) {
    const std::lock_guard lock(mutex);
    known[name] = way;
}

Way fastest_way(const Widths& widths) {
    const std::string name = name_of(widths);
    if (const std::optional<Way> way = known_way(name)) return *way;
    const int number = kept().find(name, [&] { return measure(widths); });
    Way way = widths.bf16 ? choice().bf16 : choice().f32;
    if (number >= 0 && number < ways && why_unusable(Way(number), widths.bf16).empty())
        way = Way(number);
    set_way(name, way);
    return way;
}

std::map<std::string, int> kept_ways() { return kept().all(); }

}  // namespace nn::products
