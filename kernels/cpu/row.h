// What the kernels that work on rows share: scratch memory and loops over one row. Loops state
// their independence with `#pragma omp simd`; sums of T are kept in Acc<T>.
#pragma once
#include <cstdlib>
#include <new>
#include <type_traits>

#include "kernels/cpu/cpu.h"

namespace nn::NN_ISA {

// Memory of one thread that grows to the largest size asked for and is kept. Its contents are
// undefined. A std::vector would not do: its functions are shared by all instruction sets,
// whichever the linker picks.
class Scratch {
public:
    Scratch() = default;
    ~Scratch() { std::free(data_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    template <class A> A* get(int64_t n) {
        const size_t bytes = (size_t(n) * sizeof(A) + 64) / 64 * 64;
        if (bytes > size_) {
            std::free(data_);
            data_ = std::aligned_alloc(64, bytes);
            size_ = data_ ? bytes : 0;
            if (!data_) throw std::bad_alloc();
        }
        return static_cast<A*>(data_);
    }

private:
    void* data_ = nullptr;
    size_t size_ = 0;
};

// NaN is passed over, as comparisons with it are false; -inf for an empty row.
template <class T> static inline Acc<T> row_max(const T* x, int64_t n) {
    Acc<T> largest = -std::numeric_limits<Acc<T>>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < n; ++j) largest = Acc<T>(x[j]) > largest ? Acc<T>(x[j]) : largest;
    return largest;
}

// Sum of e^(x - shift), with the terms kept in e.
template <class T> static inline Acc<T> row_exp(const T* x, int64_t n, Acc<T> shift, Acc<T>* e) {
    Acc<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) {
        e[j] = exp_negative(Acc<T>(x[j]) - shift);
        sum += e[j];
    }
    return sum;
}

template <class T> static inline Acc<T> row_exp_sum(const T* x, int64_t n, Acc<T> shift) {
    Acc<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) sum += exp_negative(Acc<T>(x[j]) - shift);
    return sum;
}

template <class From, class To> static inline void row_convert(const From* x, int64_t n, To* y) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] = To(Acc<From>(x[j]));
}

template <class A> static inline void row_fill(A* y, int64_t n, A value) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] = value;
}

// out[r] += alpha x . y_r for `rows` (up to 4) rows of y, `stride` apart. Four sums at a time hide
// the latency of one.
template <class T>
static inline void add_dots(const Acc<T>* x, const T* y, int64_t stride, int64_t rows, int64_t n,
                            Acc<T> alpha, Acc<T>* out) {
    const T *y1 = rows > 1 ? y + stride : y, *y2 = rows > 2 ? y + 2 * stride : y,
            *y3 = rows > 3 ? y + 3 * stride : y;
    Acc<T> a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t l = 0; l < n; ++l) {
        a += x[l] * Acc<T>(y[l]), b += x[l] * Acc<T>(y1[l]);
        c += x[l] * Acc<T>(y2[l]), d += x[l] * Acc<T>(y3[l]);
    }
    const Acc<T> sums[] = {a, b, c, d};
    for (int64_t r = 0; r < rows; ++r) out[r] += alpha * sums[r];
}

// out (n) += the sum of `rows` (up to 4) rows of y, `stride` apart, each times its alpha x.
template <class T>
static inline void add_rows(const Acc<T>* x, const T* y, int64_t stride, int64_t rows, int64_t n,
                            Acc<T> alpha, Acc<T>* out) {
    const T *y1 = y + stride, *y2 = y + 2 * stride, *y3 = y + 3 * stride;
    if (rows == 4) {
        const Acc<T> a = alpha * x[0], b = alpha * x[1], c = alpha * x[2], d = alpha * x[3];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j)
            out[j] +=
                (a * Acc<T>(y[j]) + b * Acc<T>(y1[j])) + (c * Acc<T>(y2[j]) + d * Acc<T>(y3[j]));
        return;
    }
    for (int64_t r = 0; r < rows; ++r, y += stride)
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] += alpha * x[r] * Acc<T>(y[j]);
}

}  // namespace nn::NN_ISA
