// Sum, max, min and product over the middle axis of (outer, n, inner), and the positions of the
// largest and smallest. Float sums add short runs in float and the runs in double, which is precise
// for ten million elements. max, min, argmax and argmin give NaN if there is one, as in PyTorch.
#include "kernels/params/reduce.h"

#include "kernels/cpu/row.h"
#include "kernels/math/extremes.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t lanes = 64;      // partial results of a contiguous row
constexpr int64_t max_cols = 256;  // columns reduced at a time where inner > 1
constexpr int64_t run = 64;        // terms added in the accumulator type

enum Kind { sum, largest, smallest, product };

template <Kind kind, class A> constexpr A identity() {
    using Limits = std::numeric_limits<A>;
    switch (kind) {
        case sum: return A(0);
        case product: return A(1);
        case largest: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
        default: return Limits::has_infinity ? Limits::infinity() : Limits::max();
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
// The type that combines the results of runs.
template <class A> using Total = std::conditional_t<std::is_same_v<A, float>, double, A>;

// acc[c] = acc[c] op x[0, c] op ... op x[rows - 1, c]
template <Kind kind, class A, class T>
void reduce_rows(A* acc, const T* x, int64_t rows, int64_t cols, int64_t stride) {
    for (; rows >= 4; rows -= 4, x += 4 * stride) {
        const T *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        simd_for(cols, [=](int64_t c) {
            const A low = combine<kind>(A(x[c]), A(x1[c])),
                    high = combine<kind>(A(x2[c]), A(x3[c]));
            acc[c] = combine<kind>(acc[c], combine<kind>(low, high));
        });
    }
    for (; rows; --rows, x += stride)
        simd_for(cols, [=](int64_t c) { acc[c] = combine<kind>(acc[c], A(x[c])); });
}

template <Kind kind, class A, class T> Total<A> reduce_contiguous(const T* x, int64_t n) {
    Total<A> total = identity<kind, Total<A>>();
    alignas(64) A acc[lanes];
    for (int64_t rows; (rows = std::min(run, n / lanes)) > 0;
         x += rows * lanes, n -= rows * lanes) {
        row_fill(acc, lanes, identity<kind, A>());
        reduce_rows<kind>(acc, x, rows, lanes, lanes);
        for (int64_t width = lanes / 2; width; width /= 2)
            for (int64_t i = 0; i < width; ++i) acc[i] = combine<kind>(acc[i], acc[i + width]);
        total = combine<kind>(total, Total<A>(acc[0]));
    }
    for (int64_t i = 0; i < n; ++i) total = combine<kind>(total, Total<A>(A(x[i])));
    return total;
}

// total[c], c < cols <= max_cols
template <Kind kind, class A, class T>
void reduce_columns(Total<A>* total, const T* x, int64_t n, int64_t cols, int64_t stride) {
    alignas(64) A acc[max_cols];
    row_fill(total, cols, identity<kind, Total<A>>());
    for (int64_t r = 0; r < n; r += run) {
        row_fill(acc, cols, identity<kind, A>());
        reduce_rows<kind>(acc, x + r * stride, std::min(run, n - r), cols, stride);
        simd_for(cols, [&](int64_t c) { total[c] = combine<kind>(total[c], Total<A>(acc[c])); });
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
    const T* x = call.input<T>(1);
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
    visit_any(call.dtype, [&]<class T>(T*) {
        switch (call.get<nn_reduce_params>().kind) {
            case sum: return reduce_tile<sum, T>(call);
            case largest: return reduce_tile<largest, T>(call);
            case smallest: return reduce_tile<smallest, T>(call);
            default: return reduce_tile<product, T>(call);
        }
    });
}

// Whether x replaces `best`. At a tie it does not.
template <Kind kind, class A> bool better(A x, A best) {
    const bool ahead = kind == largest ? x > best : x < best;
    return ahead | ((x != x) & (best == best));
}

// For each block of a row, finds the value first, which vectorises, then its position.
template <Kind kind, class A, class T>
void find_contiguous(A* value, int64_t* index, const T* x, int64_t n) {
    constexpr int64_t block = run * lanes;
    *value = A(x[0]);
    *index = 0;
    for (int64_t i = 0; i < n; i += block) {
        const A found = A(reduce_contiguous<kind, A>(x + i, std::min(block, n - i)));
        if (!better<kind>(found, *value)) continue;
        *value = found;
        *index = i;
        while (A(x[*index]) != found && A(x[*index]) == A(x[*index])) ++*index;  // stops at NaN
    }
}

template <Kind kind, class A, class T>
void find_columns(A* value, int64_t* index, const T* x, int64_t n, int64_t cols, int64_t stride) {
    row_fill(index, cols, int64_t(0));
    for (int64_t c = 0; c < cols; ++c) value[c] = A(x[c]);
    for (int64_t i = 1; i < n; ++i) {
        x += stride;
        simd_for(cols, [=](int64_t c) {
            const bool wins = better<kind>(A(x[c]), value[c]);
            value[c] = wins ? A(x[c]) : value[c];
            index[c] = wins ? i : index[c];
        });
    }
}

// Combines the result of this tile with that of earlier calls, whose tiles may lie after it.
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
    const T* x = call.input<T>(2);
    alignas(64) Acc<T> values[lanes];
    alignas(64) int64_t indices[lanes];
    if (p.n == 0)
        return call.fail("an empty axis has no %s element",
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
    visit_any(call.dtype, [&]<class T>(T*) {
        if (call.get<nn_argreduce_params>().kind == largest)
            argreduce_tile<largest, T>(call);
        else
            argreduce_tile<smallest, T>(call);
    });
}

NN_IMPLEMENT(reduce, argreduce);

}  // namespace
}  // namespace nn::NN_TARGET
