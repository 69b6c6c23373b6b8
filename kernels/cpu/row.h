// Scratch memory and loops over one row. Sums of T are kept in Acc<T>.
#pragma once
#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "kernels/cpu/cpu.h"
#include "kernels/math/exp.h"
#include "kernels/team.h"

namespace nn::NN_TARGET {

// Memory of one thread, uninitialised. It grows to the largest size requested and is kept. Not a
// std::vector, whose functions the linker shares between targets.
class Scratch {
public:
    Scratch() = default;
    ~Scratch() { std::free(data_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    template <class A> A* get(int64_t n) {
        size_t bytes = (size_t(n) * sizeof(A) + 64) / 64 * 64;
        if (bytes > size_) {
            std::free(data_);
            const size_t alignment = bytes > huge_page / 4 ? huge_page : 64;
            bytes = (bytes + alignment - 1) / alignment * alignment;
            data_ = std::aligned_alloc(alignment, bytes);
            size_ = data_ ? bytes : 0;
            if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
            if (alignment == huge_page) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
        }
        return static_cast<A*>(data_);
    }

private:
    static constexpr size_t huge_page = 2 << 20;
    void* data_ = nullptr;
    size_t size_ = 0;
};

// Ignores NaN, as comparisons with it are false; -inf for an empty row.
template <class T> static inline Acc<T> row_max(const T* x, int64_t n) {
    Acc<T> largest = -std::numeric_limits<Acc<T>>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < n; ++j) largest = Acc<T>(x[j]) > largest ? Acc<T>(x[j]) : largest;
    return largest;
}

// The sum of e^(x - shift); e receives the terms.
template <class T> static inline Acc<T> row_exp(const T* x, int64_t n, Acc<T> shift, Acc<T>* e) {
    return simd_sum<Acc<T>>(n,
                            [=](int64_t j) { return e[j] = exp_negative(Acc<T>(x[j]) - shift); });
}

template <class T> static inline Acc<T> row_exp_sum(const T* x, int64_t n, Acc<T> shift) {
    return simd_sum<Acc<T>>(n, [=](int64_t j) { return exp_negative(Acc<T>(x[j]) - shift); });
}

template <class From, class To> static inline void row_convert(const From* x, int64_t n, To* y) {
    simd_for(n, [=](int64_t j) { y[j] = To(Acc<From>(x[j])); });
}

template <class A> static inline void row_fill(A* y, int64_t n, A value) {
    simd_for(n, [=](int64_t j) { y[j] = value; });
}

// The sum of x, whose upper half is added to its lower half until one is left. Each step has a
// constant length: otherwise the compiler adds element by element.
template <int64_t lanes, class A> [[gnu::always_inline]] static inline A fold(A* x) {
    if constexpr (lanes > 1) {
        constexpr int64_t half = lanes / 2;
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) x[i] += x[i + half];
        return fold<half>(x);
    }
    return x[0];
}

// out[r] += alpha x . y_r for `rows` (up to 4) rows of y, `stride` apart. Each sum is kept in the
// lanes of a vector, in the same order for every instruction set. `more`: the next rows follow
// these; prefetching them gives an eighth more bandwidth.
template <class T>
static inline void add_dots(const Acc<T>* x, const T* y, int64_t stride, int64_t rows, int64_t n,
                            Acc<T> alpha, Acc<T>* out, bool more) {
    constexpr int64_t lanes = 64 / sizeof(Acc<T>);
    const int64_t ahead = more ? 4 * stride : 0;
    const T *y1 = rows > 1 ? y + stride : y, *y2 = rows > 2 ? y + 2 * stride : y,
            *y3 = rows > 3 ? y + 3 * stride : y;
    Acc<T> a[lanes] = {}, b[lanes] = {}, c[lanes] = {}, d[lanes] = {};
    int64_t l = 0;
    for (; l + lanes <= n; l += lanes) {
        for (const T* row : {y, y1, y2, y3}) __builtin_prefetch(row + ahead + l, 0, 2);
#pragma omp simd
        for (int64_t i = 0; i < lanes; ++i) {
            const Acc<T> v = x[l + i];
            a[i] += v * Acc<T>(y[l + i]), b[i] += v * Acc<T>(y1[l + i]);
            c[i] += v * Acc<T>(y2[l + i]), d[i] += v * Acc<T>(y3[l + i]);
        }
    }
    for (int64_t i = 0; l < n; ++l, ++i) {
        a[i] += x[l] * Acc<T>(y[l]), b[i] += x[l] * Acc<T>(y1[l]);
        c[i] += x[l] * Acc<T>(y2[l]), d[i] += x[l] * Acc<T>(y3[l]);
    }
    const Acc<T> sums[] = {fold<lanes>(a), fold<lanes>(b), fold<lanes>(c), fold<lanes>(d)};
    for (int64_t r = 0; r < rows; ++r) out[r] += alpha * sums[r];
}

// out (n) += alpha times the sum of x[r] y_r for `rows` (up to 4) rows of y, `stride` apart.
template <class T>
static inline void add_rows(const Acc<T>* x, const T* y, int64_t stride, int64_t rows, int64_t n,
                            Acc<T> alpha, Acc<T>* out) {
    const T *y1 = y + stride, *y2 = y + 2 * stride, *y3 = y + 3 * stride;
    if (rows == 4) {
        const Acc<T> a = alpha * x[0], b = alpha * x[1], c = alpha * x[2], d = alpha * x[3];
        return simd_for(n, [=](int64_t j) {
            out[j] +=
                (a * Acc<T>(y[j]) + b * Acc<T>(y1[j])) + (c * Acc<T>(y2[j]) + d * Acc<T>(y3[j]));
        });
    }
    for (int64_t r = 0; r < rows; ++r, y += stride)
        simd_for(n, [=](int64_t j) { out[j] += alpha * x[r] * Acc<T>(y[j]); });
}

// Calls body(begin, end) for chunks of [0, length), on helping workers too.
template <class F> static inline void parallel_for(int64_t length, F body) {
    const auto call = [](void* f, int64_t begin, int64_t end) {
        (*static_cast<F*>(f))(begin, end);
    };
    team::parallel_for(length, call, &body);
}

}  // namespace nn::NN_TARGET
