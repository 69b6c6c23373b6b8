// Products with weights of 8 bits, for generating text: each row of the weight has a scale, and a
// byte b stands for b - 128. A few rows of A read the weight once, so the time is that of reading
// its bytes; for more rows, blocks of the weight are converted and multiplied as f32.
#include "kernels/blas.h"
#include "kernels/cpu/row.h"
#include "kernels/math/activations.h"
#include "kernels/params/gemm_bytes.h"
#include "kernels/params/rows.h"
#include "kernels/products/products.h"

namespace nn::NN_TARGET {

// An element of the weight, without its scale.
template <class A> struct Byte {
    uint8_t bits;
    operator A() const { return A(int32_t(bits) - 128); }
};
// Sums of its products; see types.h.
template <class A> struct Accumulator<Byte<A>> { using type = A; };

namespace {

template <class T> struct ProductOfBytes {
    const nn_gemm_bytes_params& p;
    T* c;
    const T* a;
    const Byte<Acc<T>>* b;
    const Acc<T>* scale;
    const T* bias;
};

// c = scale sum + bias, or GELU of that, for row i and columns [j, j + n).
template <class T>
void finish_row(const ProductOfBytes<T>& g, int64_t i, int64_t j, int64_t n, const Acc<T>* sum) {
    T* const c = g.c + i * g.p.n + j;
    const Acc<T>* const scale = g.scale + j;
    const T* const bias = g.bias ? g.bias + j : nullptr;
    const auto value = [=](int64_t l) {
        return bias ? sum[l] * scale[l] + Acc<T>(bias[l]) : sum[l] * scale[l];
    };
    if (g.p.gelu)
        simd_for(n, [=](int64_t l) { c[l] = T(math::gelu(value(l))); });
    else
        simd_for(n, [=](int64_t l) { c[l] = T(value(l)); });
}

// sum (m, n) = x times rows [j, j + n) of B, of which `block` holds 4 rows as numbers.
template <class T>
void stream_rows(const ProductOfBytes<T>& g, const Acc<T>* x, int64_t j, int64_t n, Acc<T>* sum,
                 Acc<T>* block) {
    using A = Acc<T>;
    const int64_t m = g.p.m, k = g.p.k;
    row_fill(sum, m * n, A(0));
    for (int64_t r = 0; r < n; r += 4) {
        const int64_t rows = std::min(int64_t(4), n - r);
        const Byte<A>* const b = g.b + (j + r) * k;
        if (m == 1) {
            add_dots(x, b, k, rows, k, A(1), sum + r, r + 4 < n);
            continue;
        }
        row_convert(b, rows * k, block);
        for (int64_t i = 0; i < m; ++i)
            add_dots(x + i * k, block, k, rows, k, A(1), sum + i * n + r, false);
    }
}

// Threads share the columns in blocks of about 64 kB of B.
template <class T> void multiply_few_rows(const ProductOfBytes<T>& g) {
    static thread_local Scratch x_scratch;
    using A = Acc<T>;
    const int64_t m = g.p.m, n = g.p.n, k = g.p.k;
    const int64_t block = std::clamp<int64_t>(65536 / std::max<int64_t>(1, k) & ~3, 4, 1024);
    A* const x = x_scratch.get<A>(m * k);
    row_convert(g.a, m * k, x);
    parallel_for((n + block - 1) / block, [=, &g](int64_t begin, int64_t end) {
        static thread_local Scratch scratch;
        A* const sum = scratch.get<A>(m * block + 4 * k);
        for (int64_t j = begin * block; j < std::min(end * block, n); j += block) {
            const int64_t cols = std::min(block, n - j);
            stream_rows(g, x, j, cols, sum, sum + m * block);
            for (int64_t i = 0; i < m; ++i) finish_row(g, i, j, cols, sum + i * cols);
        }
    });
}

void multiply_numbers(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
    products::gemm(products::choice().f32, false, true, m, n, k, 1.0f, a, k, b, k, 0.0f, c, n);
}
void multiply_numbers(int64_t m, int64_t n, int64_t k, const double* a, const double* b,
                      double* c) {
    blas::gemm(false, true, m, n, k, 1.0, a, k, b, k, 0.0, c, n);
}

// Converts blocks of B of at most 1 MB to f32, which stay in the cache.
template <class T> void multiply_blocks(const ProductOfBytes<T>& g) {
    static thread_local Scratch x_scratch, scratch;
    using A = Acc<T>;
    const int64_t m = g.p.m, n = g.p.n, k = g.p.k;
    const int64_t fitting = (1 << 20) / (std::max<int64_t>(1, k) * int64_t(sizeof(A)));
    const int64_t block = std::min(n, std::max<int64_t>(32, fitting & ~31));
    const A* x;
    if constexpr (std::is_same_v<T, A>) {
        x = g.a;
    } else {
        A* const converted = x_scratch.get<A>(m * k);
        row_convert(g.a, m * k, converted);
        x = converted;
    }
    A* const b = scratch.get<A>(block * (k + m));
    A* const sum = b + block * k;
    for (int64_t j = 0; j < n; j += block) {
        const int64_t cols = std::min(block, n - j);
        row_convert(g.b + j * k, cols * k, b);
        multiply_numbers(m, cols, k, x, b, sum);
        for (int64_t i = 0; i < m; ++i) finish_row(g, i, j, cols, sum + i * cols);
    }
}

void gemm_bytes(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_bytes_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const ProductOfBytes<T> g{p,
                                  call.operand<T>(0),
                                  call.input<T>(1),
                                  call.input<Byte<A>>(2),
                                  call.input<A>(3),
                                  call.input<T>(4)};
        if (p.m <= team::few_rows)
            multiply_few_rows(g);
        else
            multiply_blocks(g);
    });
}

// The scale of a row is its largest absolute value over 127; NaN and infinity make it NaN.
template <class T> Acc<T> scale_of(const T* x, int64_t n) {
    using A = Acc<T>;
    A largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < n; ++j)
        largest = std::fabs(A(x[j])) > largest ? std::fabs(A(x[j])) : largest;
    return largest / A(127) + simd_sum<A>(n, [=](int64_t j) { return A(x[j]) * A(0); });
}

void quantize_rows(const KernelCall& call) {
    const auto& p = call.get<nn_rows_params>();
    uint8_t* y = call.operand<uint8_t>(0);
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        A* const scale = call.operand<A>(1);
        const T* x = call.input<T>(2);
        for (int64_t i = 0; i < p.rows; ++i, x += p.cols, y += p.cols) {
            scale[i] = scale_of(x, p.cols);
            const A divisor = scale[i] > 0 ? scale[i] : A(1);
            simd_for(p.cols, [=](int64_t j) {
                const A steps = std::nearbyint(A(x[j]) / divisor);
                y[j] =
                    uint8_t(int32_t(steps < 127 ? steps > -127 ? steps : A(-127) : A(127)) + 128);
            });
        }
    });
}

NN_IMPLEMENT(gemm_bytes, quantize_rows);

}  // namespace
}  // namespace nn::NN_TARGET
