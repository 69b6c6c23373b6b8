// Sum, max, min and product over the middle of (outer, n, inner), and the positions of the largest
// and smallest. Sums of floats add short runs in float and the runs in double, so that ten million
// elements lose nothing. NaN wins max, min, argmax and argmin, as in PyTorch.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cpu.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t lanes = 64;      // partial results of a contiguous row
constexpr int64_t max_cols = 256;  // columns reduced at a time where inner > 1
constexpr int64_t run = 64;        // terms added in the accumulator type

enum Kind { sum, largest, smallest, product };

template <class A> constexpr A infinity() {
    using Limits = std::numeric_limits<A>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
}
template <Kind kind, class A> constexpr A identity() {
    switch (kind) {
        case sum: return A(0);
        case product: return A(1);
        case largest:
            return std::is_same_v<A, int64_t> ? std::numeric_limits<A>::lowest() : -infinity<A>();
        default: return infinity<A>();
    }
}
template <Kind kind, class A> A combine(A a, A b) {
    switch (kind) {
        case sum: return a + b;
        case product: return a * b;
        case largest: return math::maximum(a, b);
        default: return math::minimum(a, b);
    }
}
// What the partial results of many runs are gathered in.
template <class A> using Total = std::conditional_t<std::is_same_v<A, float>, double, A>;

// acc[c] = acc[c] op x[0, c] op ... op x[rows - 1, c]
template <Kind kind, class A, class T>
void reduce_rows(A* acc, const T* x, int64_t rows, int64_t cols, int64_t stride) {
    for (; rows >= 4; rows -= 4, x += 4 * stride) {
        const T *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) {
            const A low = combine<kind>(A(x[c]), A(x1[c])),
                    high = combine<kind>(A(x2[c]), A(x3[c]));
            acc[c] = combine<kind>(acc[c], combine<kind>(low, high));
        }
    }
    for (; rows; --rows, x += stride)
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) acc[c] = combine<kind>(acc[c], A(x[c]));
}

template <class A> void set(A* x, A value, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) x[i] = value;
}

template <Kind kind, class A, class T> Total<A> reduce_contiguous(const T* x, int64_t n) {
    Total<A> total = identity<kind, Total<A>>();
    alignas(64) A acc[lanes];
    for (; n >= lanes; x += run * lanes, n -= run * lanes) {
        set(acc, identity<kind, A>(), lanes);
        const int64_t rows = std::min(run, n / lanes);
        reduce_rows<kind>(acc, x, rows, lanes, lanes);
        for (int64_t width = lanes / 2; width; width /= 2)
            for (int64_t i = 0; i < width; ++i) acc[i] = combine<kind>(acc[i], acc[i + width]);
        total = combine<kind>(total, Total<A>(acc[0]));
        if (rows < run) {
            x += rows * lanes;
            n -= rows * lanes;
            break;
        }
    }
    for (int64_t i = 0; i < n; ++i) total = combine<kind>(total, Total<A>(A(x[i])));
    return total;
}

// total[c], c < cols <= max_cols
template <Kind kind, class A, class T>
void reduce_columns(Total<A>* total, const T* x, int64_t n, int64_t cols, int64_t stride) {
    alignas(64) A acc[max_cols];
    set(total, identity<kind, Total<A>>(), cols);
    for (int64_t r = 0; r < n; r += run) {
        set(acc, identity<kind, A>(), cols);
        reduce_rows<kind>(acc, x + r * stride, std::min(run, n - r), cols, stride);
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) total[c] = combine<kind>(total[c], Total<A>(acc[c]));
    }
}

template <Kind kind, class Out, class A> void finish(Out* y, const nn_reduce_params& p, A total) {
    const A scaled = p.scale == 1 ? total : A(double(total) * p.scale);
    *y = Out(p.first ? scaled : combine<kind>(A(*y), scaled));
}

template <Kind kind, class T> void reduce_tile(const KernelCall& call) {
    using A = Acc<T>;
    using Out = std::conditional_t<kind == sum || kind == product, A, T>;
    const auto& p = call.get<nn_reduce_params>();
    Out* y = call.operand<Out>(0);
    const T* x = call.operand<const T>(1);
    alignas(64) Total<A> total[max_cols];
    for (int64_t o = 0; o < p.outer; ++o, x += p.n * p.inner, y += p.inner) {
        if (p.inner == 1) {
            finish<kind>(y, p, reduce_contiguous<kind, A>(x, p.n));
            continue;
        }
        for (int64_t c = 0; c < p.inner; c += max_cols) {
            const int64_t cols = std::min(max_cols, p.inner - c);
            reduce_columns<kind, A>(total, x + c, p.n, cols, p.inner);
            for (int64_t i = 0; i < cols; ++i) finish<kind>(y + c + i, p, total[i]);
        }
    }
}

void reduce(const KernelCall& call) {
    visit_any(call.dtype, [&](auto zero) {
        using T = decltype(zero);
        switch (call.get<nn_reduce_params>().kind) {
            case sum: return reduce_tile<sum, T>(call);
            case largest: return reduce_tile<largest, T>(call);
            case smallest: return reduce_tile<smallest, T>(call);
            default: return reduce_tile<product, T>(call);
        }
    });
}

// Whether x comes before `best` in the order looked for. At a tie the first found stays.
template <Kind kind, class A> bool better(A x, A best) {
    const bool ahead = kind == largest ? x > best : x < best;
    return ahead | ((x != x) & (best == best));
}

// Finds the winner of a block of a row before its place, since the first vectorises.
template <Kind kind, class A, class T>
void find_contiguous(A* value, int64_t* index, const T* x, int64_t n) {
    constexpr int64_t block = run * lanes;
    *value = A(x[0]);
    *index = 0;
    for (int64_t i = 0; i < n; i += block) {
        const A winner = A(reduce_contiguous<kind, A>(x + i, std::min(block, n - i)));
        if (!better<kind>(winner, *value)) continue;
        *value = winner;
        *index = i;
        while (A(x[*index]) != winner && A(x[*index]) == A(x[*index])) ++*index;  // stops at NaN
    }
}

template <Kind kind, class A, class T>
void find_columns(A* value, int64_t* index, const T* x, int64_t n, int64_t cols, int64_t stride) {
    set(index, int64_t(0), cols);
    for (int64_t c = 0; c < cols; ++c) value[c] = A(x[c]);
    for (int64_t i = 1; i < n; ++i) {
        x += stride;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) {
            const bool wins = better<kind>(A(x[c]), value[c]);
            value[c] = wins ? A(x[c]) : value[c];
            index[c] = wins ? i : index[c];
        }
    }
}

// Where the tile's winner goes against that of earlier tiles, which may lie after it.
template <Kind kind, class T>
void record(int64_t* index, T* value, bool first, int64_t new_index, Acc<T> new_value) {
    const Acc<T> old = first ? Acc<T>(0) : Acc<T>(*value);
    const bool tie = new_value == old || (new_value != new_value && old != old);
    if (!first && (tie ? *index < new_index : !better<kind>(new_value, old))) return;
    *index = new_index;
    *value = T(new_value);
}

template <Kind kind, class T> void argreduce_tile(const KernelCall& call) {
    const auto& p = call.get<nn_argreduce_params>();
    int64_t* index = call.operand<int64_t>(0);
    T* value = call.operand<T>(1);
    const T* x = call.operand<const T>(2);
    alignas(64) Acc<T> values[lanes];
    alignas(64) int64_t indices[lanes];
    if (p.n == 0)
        return call.fail("the axis is empty, so nothing is the %s",
                         kind == largest ? "largest" : "smallest");
    for (int64_t o = 0; o < p.outer; ++o, x += p.n * p.inner)
        for (int64_t c = 0; c < p.inner; c += lanes) {
            const int64_t cols = std::min(lanes, p.inner - c);
            if (p.inner == 1)
                find_contiguous<kind>(values, indices, x, p.n);
            else
                find_columns<kind>(values, indices, x + c, p.n, cols, p.inner);
            for (int64_t i = 0; i < cols; ++i)
                record<kind, T>(index++, value++, p.first, p.start + indices[i], values[i]);
        }
}

void argreduce(const KernelCall& call) {
    visit_any(call.dtype, [&](auto zero) {
        using T = decltype(zero);
        if (call.get<nn_argreduce_params>().kind == largest)
            argreduce_tile<largest, T>(call);
        else
            argreduce_tile<smallest, T>(call);
    });
}

NN_IMPLEMENT(reduce, argreduce);

}  // namespace
}  // namespace nn::NN_TARGET
