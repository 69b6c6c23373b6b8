// LayerNorm (Ba et al., arXiv:1607.06450) and RMSNorm (Zhang and Sennrich, arXiv:1910.07467) with
// the residual sum before them, and their gradients. For y and dx a block computes a row, which its
// registers keep; of one that is too long for them, or not aligned, all loops but the first read
// the cache. The gradients of weight and bias come from the same sweep, or, of such rows, from a
// second one.
#include "kernels/cuda/columns.cuh"
#include "kernels/params/layernorm.h"

namespace nn::NN_TARGET {
namespace {

// s, r and bias may be null. stats: (rows, 2), mean and 1/deviation.
template <class T> struct Forward {
    T *y, *s;
    Acc<T>* stats;
    const T *x, *r, *weight, *bias;
    int64_t cols;
    Acc<T> eps;
    bool packed, rms;
    // x + r, rounded to T
    template <int width> __device__ void sum(int64_t at, Acc<T>* v) const {
        load_pack<width>(x + at, v);
        if (!r) return;
        Acc<T> w[width];
        load_pack<width>(r + at, w);
#pragma unroll
        for (int e = 0; e < width; ++e) v[e] = number(stored<T>(v[e] + w[e]));
    }
};

constexpr unsigned row_threads = 256;

// The packs of 16 bytes that each thread has of a row, up to 4; 0 if it does not fit.
template <class T> int packs_of_row(int64_t cols, bool packed) {
    for (int packs : {1, 2, 4})
        if (packed && cols <= packs * int64_t(row_threads) * lanes16<T>) return packs;
    return 0;
}
template <class T> Shape shape_of_rows(int64_t blocks, int64_t cols, int packs) {
    return {blocks_for(blocks, 1), threads_for(cols, packs * lanes16<T>, row_threads)};
}
// The first column of this thread's k-th pack.
template <class T> __device__ int64_t column_of(int k) {
    return (int64_t(k) * blockDim.x + threadIdx.x) * int64_t(lanes16<T>);
}

// With the row in registers.
template <class T, int packs>
__global__ void __launch_bounds__(row_threads) layernorm_kernel(const Forward<T> f) {
    using A = Acc<T>;
    constexpr int width = lanes16<T>;
    const int64_t row = blockIdx.x, start = row * f.cols;
    A v[packs][width], sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        if (column_of<T>(k) >= f.cols) continue;
        f.template sum<width>(start + column_of<T>(k), v[k]);
        for (int e = 0; e < width; ++e) sum += v[k][e];
        if (f.s) store_pack<width>(f.s + start + column_of<T>(k), v[k]);
    }
    const A mean = f.rms ? A(0) : block_reduce(sum, Sum()) / A(f.cols);
    // The variance is the mean of squared differences: E[x^2] - E[x]^2 would cancel.
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        if (column_of<T>(k) >= f.cols) continue;
        for (int e = 0; e < width; ++e) squares += (v[k][e] - mean) * (v[k][e] - mean);
    }
    const A rstd = A(1) / math::sqrt(block_reduce(squares, Sum()) / A(f.cols) + f.eps);
    if (threadIdx.x == 0) f.stats[2 * row] = mean, f.stats[2 * row + 1] = rstd;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        const int64_t column = column_of<T>(k);
        if (column >= f.cols) continue;
        A w[width], b[width] = {};
        load_pack<width>(f.weight + column, w);
        if (f.bias) load_pack<width>(f.bias + column, b);
        for (int e = 0; e < width; ++e) v[k][e] = (v[k][e] - mean) * rstd * w[e] + b[e];
        store_pack<width>(f.y + start + column, v[k]);
    }
}

// For rows that are too long or not aligned.
template <class T>
__global__ void __launch_bounds__(256) layernorm_long_kernel(const Forward<T> f) {
    using A = Acc<T>;
    const int64_t row = blockIdx.x, start = row * f.cols;
    A sum = 0;
    each_pack<T>(0, f.cols, f.packed, [&](int64_t j, auto width) {
        A v[width];
        f.template sum<width>(start + j, v);
        for (int e = 0; e < width; ++e) sum += v[e];
        if (f.s) store_pack<width>(f.s + start + j, v);
    });
    const A mean = f.rms ? A(0) : block_reduce(sum, Sum()) / A(f.cols);
    A squares = 0;
    each_pack<T>(0, f.cols, f.packed, [&](int64_t j, auto width) {
        A v[width];
        f.template sum<width>(start + j, v);
        for (int e = 0; e < width; ++e) squares += (v[e] - mean) * (v[e] - mean);
    });
    const A rstd = A(1) / math::sqrt(block_reduce(squares, Sum()) / A(f.cols) + f.eps);
    if (threadIdx.x == 0) f.stats[2 * row] = mean, f.stats[2 * row + 1] = rstd;
    each_pack<T>(0, f.cols, f.packed, [&](int64_t j, auto width) {
        A v[width], w[width], b[width] = {};
        f.template sum<width>(start + j, v);
        load_pack<width>(f.weight + j, w);
        if (f.bias) load_pack<width>(f.bias + j, b);
        for (int e = 0; e < width; ++e) v[e] = (v[e] - mean) * rstd * w[e] + b[e];
        store_pack<width>(f.y + start + j, v);
    });
}

void layernorm(const KernelCall& call) {
    const auto& p = call.get<nn_layernorm_params>();
    if (p.rows == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        Forward<T> f{call.operand<T>(0),
                     call.operand<T>(1),
                     call.operand<Acc<T>>(2),
                     call.input<T>(3),
                     call.input<T>(4),
                     call.input<T>(5),
                     call.input<T>(6),
                     p.cols,
                     Acc<T>(p.eps),
                     false,
                     p.rms != 0};
        if (!f.r) f.s = nullptr;
        f.packed = rows_packed<T>(p.cols, f.y, f.s, f.x, f.r, f.weight, f.bias);
        const int packs = packs_of_row<T>(p.cols, f.packed);
        if (packs == 0)
            launch(call, rows_shape<T>(p.rows, p.cols, f.packed), layernorm_long_kernel<T>, f);
        else
            launch(call, shape_of_rows<T>(p.rows, p.cols, packs),
                   packs == 1   ? layernorm_kernel<T, 1>
                   : packs == 2 ? layernorm_kernel<T, 2>
                                : layernorm_kernel<T, 4>,
                   f);
    });
}

// ds, which may be null, is the gradient of s from the residual path.
template <class T> struct Backward {
    static constexpr int outputs = 2;  // dweight, dbias
    T* dx;
    const T *dy, *s;
    const Acc<T>* stats;
    const T *weight, *ds;
    int64_t cols;
    bool packed, rms;
    // h = (s - mean) rstd, and dy
    template <int width>
    __device__ void normalised(int64_t row, int64_t column, Acc<T>* h, Acc<T>* d) const {
        const Acc<T> mean = stats[2 * row], rstd = stats[2 * row + 1];
        load_pack<width>(s + row * cols + column, h);
        load_pack<width>(dy + row * cols + column, d);
#pragma unroll
        for (int e = 0; e < width; ++e) h[e] = (h[e] - mean) * rstd;
    }
    template <int width>
    __device__ void add(int64_t row, int64_t column, Acc<T> (&sums)[2][width]) const {
        Acc<T> h[width], d[width];
        normalised<width>(row, column, h, d);
#pragma unroll
        for (int e = 0; e < width; ++e) {
            sums[0][e] += d[e] * h[e];
            sums[1][e] += d[e];
        }
    }
};

// dx = rstd (g - mean(g) - h mean(g h)) + ds with g = dy w; RMSNorm has no mean(g).
template <class T> __global__ void __launch_bounds__(256) layernorm_dx_kernel(const Backward<T> b) {
    using A = Acc<T>;
    const int64_t row = blockIdx.x;
    A sum_g = 0, sum_gh = 0;
    each_pack<T>(0, b.cols, b.packed, [&](int64_t j, auto width) {
        A h[width], g[width], w[width];
        b.template normalised<width>(row, j, h, g);
        load_pack<width>(b.weight + j, w);
        for (int e = 0; e < width; ++e) {
            sum_g += g[e] * w[e];
            sum_gh += g[e] * w[e] * h[e];
        }
    });
    const A mean_g = b.rms ? A(0) : block_reduce(sum_g, Sum()) / A(b.cols);
    const A mean_gh = block_reduce(sum_gh, Sum()) / A(b.cols);
    const A rstd = b.stats[2 * row + 1];
    each_pack<T>(0, b.cols, b.packed, [&](int64_t j, auto width) {
        A h[width], g[width], w[width], residual[width] = {};
        b.template normalised<width>(row, j, h, g);
        load_pack<width>(b.weight + j, w);
        if (b.ds) load_pack<width>(b.ds + row * b.cols + j, residual);
        for (int e = 0; e < width; ++e)
            g[e] = rstd * (g[e] * w[e] - mean_g - h[e] * mean_gh) + residual[e];
        store_pack<width>(b.dx + row * b.cols + j, g);
    });
}

// The sums of a and of b over a block.
template <class A> __device__ void block_sums(A& a, A& b) {
    __shared__ A results[2][32];
    a = warp_reduce(a, Sum()), b = warp_reduce(b, Sum());
    __syncthreads();  // those of an earlier call have been read
    if (threadIdx.x % 32 == 0) results[0][threadIdx.x / 32] = a, results[1][threadIdx.x / 32] = b;
    __syncthreads();
    a = b = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) a += results[0][w], b += results[1][w];
}

// The same in one sweep: a block computes every gridDim.x-th row, and keeps a row and its sums of
// the weights' gradients in registers, `packs` of 16 bytes of T a thread. parts (blocks, 2, cols)
// may be nullptr.
template <class T, int packs>
__global__ void __launch_bounds__(row_threads)
    layernorm_sweep_kernel(const Backward<T> b, int64_t rows, Acc<T>* parts) {
    using A = Acc<T>;
    constexpr int width = lanes16<T>;
    A w[packs][width] = {}, dweight[packs][width] = {}, dbias[packs][width] = {};
#pragma unroll
    for (int k = 0; k < packs; ++k)
        if (column_of<T>(k) < b.cols) load_pack<width>(b.weight + column_of<T>(k), w[k]);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        A h[packs][width], g[packs][width], residual[packs][width] = {}, sum_g = 0, sum_gh = 0;
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const int64_t column = column_of<T>(k);
            if (column >= b.cols) continue;
            b.template normalised<width>(row, column, h[k], g[k]);
            if (b.ds) load_pack<width>(b.ds + row * b.cols + column, residual[k]);
#pragma unroll
            for (int e = 0; e < width; ++e) {
                dweight[k][e] += g[k][e] * h[k][e];
                dbias[k][e] += g[k][e];
                g[k][e] *= w[k][e];
                sum_g += g[k][e];
                sum_gh += g[k][e] * h[k][e];
            }
        }
        block_sums(sum_g, sum_gh);
        const A mean_g = b.rms ? A(0) : sum_g / A(b.cols), mean_gh = sum_gh / A(b.cols);
        const A rstd = b.stats[2 * row + 1];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            if (column_of<T>(k) >= b.cols) continue;
#pragma unroll
            for (int e = 0; e < width; ++e)
                g[k][e] = rstd * (g[k][e] - mean_g - h[k][e] * mean_gh) + residual[k][e];
            store_pack<width>(b.dx + row * b.cols + column_of<T>(k), g[k]);
        }
    }
    if (!parts) return;
    parts += int64_t(blockIdx.x) * 2 * b.cols;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        if (column_of<T>(k) >= b.cols) continue;
        store_run<width>(parts + column_of<T>(k), width, true, dweight[k]);
        store_run<width>(parts + b.cols + column_of<T>(k), width, true, dbias[k]);
    }
}

template <class T>
void sweep(const KernelCall& call, const Backward<T>& b, int64_t rows, bool first,
           Outputs<Acc<T>> to) {
    constexpr int64_t most_blocks = 792;  // six for each multiprocessor of a large GPU
    const int packs = packs_of_row<T>(b.cols, b.packed);
    const int64_t blocks = smaller(rows, most_blocks);
    const bool wanted = to.y[0] || to.y[1];
    Acc<T>* const parts = wanted ? workspace<Acc<T>>(call, blocks * 2 * b.cols) : nullptr;
    if (wanted && !parts) return;
    const auto kernel = packs == 1   ? layernorm_sweep_kernel<T, 1>
                        : packs == 2 ? layernorm_sweep_kernel<T, 2>
                                     : layernorm_sweep_kernel<T, 4>;
    if (launch(call, shape_of_rows<T>(blocks, b.cols, packs), kernel, b, rows, parts) && wanted)
        add_parts<T>(call, parts, blocks, b.cols, 2, first, to);
}

void layernorm_backward(const KernelCall& call) {
    const auto& p = call.get<nn_layernorm_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        Backward<T> b{call.operand<T>(0), call.input<T>(3), call.input<T>(4), call.input<A>(5),
                      call.input<T>(6),   call.input<T>(7), p.cols,           false,
                      p.rms != 0};
        b.packed = rows_packed<T>(p.cols, b.dx, b.dy, b.s, b.weight, b.ds);
        const Outputs<A> to{call.operand<A>(1), call.operand<A>(2)};
        if (p.rows > 0 && packs_of_row<T>(p.cols, b.packed) > 0)
            return sweep(call, b, p.rows, p.first != 0, to);
        if (p.rows > 0 &&
            !launch(call, rows_shape<T>(p.rows, p.cols, b.packed), layernorm_dx_kernel<T>, b))
            return;
        sum_columns<T>(call, b, p.rows, p.cols, b.packed, p.first != 0, to);
    });
}

NN_IMPLEMENT(layernorm, layernorm_backward);

}  // namespace
}  // namespace nn::NN_TARGET
