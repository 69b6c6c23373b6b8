// Sum, max, min and product over the middle axis of (outer, n, inner), and the positions of the
// largest and smallest. With few results the axis is cut into chunks to use the whole GPU; their
// results are combined in order. Float sums are in double. NaN is handled as on a CPU.
#include "kernels/cuda/rows.cuh"
#include "kernels/math/extremes.h"
#include "kernels/params/reduce.h"

namespace nn::NN_TARGET {
namespace {

enum Kind { sum, largest, smallest, product };

// A holds elements exactly (float, double or int64_t); Total is the type of sums.
template <class A> using Total = std::conditional_t<std::is_same_v<A, float>, double, A>;

template <class A> __device__ A identity(int kind) {
    if (kind == sum) return A(0);
    if (kind == product) return A(1);
    if constexpr (std::is_same_v<A, int64_t>)
        return kind == largest ? A(-0x7FFFFFFFFFFFFFFF - 1) : A(0x7FFFFFFFFFFFFFFF);
    else
        return kind == largest ? -A(INFINITY) : A(INFINITY);
}
struct Combine {
    int kind;
    template <class A> __device__ A operator()(A a, A b) const {
        // Integers wrap where they overflow.
        using U = std::conditional_t<std::is_same_v<A, int64_t>, uint64_t, A>;
        switch (kind) {
            case sum: return A(U(a) + U(b));
            case product: return A(U(a) * U(b));
            case largest: return math::maximum(a, b);
            default: return math::minimum(a, b);
        }
    }
};

// Calls f(x as const T*, width as a Width) for the columns of a thread.
template <class A, class F>
__device__ void visit_columns(Dtype dtype, bool packed, const void* x, F f) {
    visit_computed<A>(dtype, [&]<class T>(T*) {
        if (packed)
            f(static_cast<const T*>(x), Width<smaller(8, lanes16<T>)>());
        else
            f(static_cast<const T*>(x), Width<1>());
    });
}

// The width of these columns; 1 unless x can be loaded in packs.
int64_t columns_width(const KernelCall& call, const void* x, int64_t inner) {
    const int64_t lanes = smaller<int64_t>(8, 16 / int64_t(dtype_size(call.dtype)));
    return aligned(x) && (inner == 1 || inner % lanes == 0) ? lanes : 1;
}

struct Reduction {
    int64_t outer, n, inner, chunk = 0, chunks = 0;  // chunk: its length
    double scale = 1;
    int kind = 0;
    bool first = false, packed = false;
    Dtype in{}, out{};
};

// y[i] becomes, or is combined with, scale * total.
template <class A> __device__ void finish(const Reduction& r, void* y, int64_t i, Total<A> total) {
    if (r.scale != 1) total = Total<A>(double(total) * r.scale);
    visit_computed<A>(r.out, [&]<class Out>(Out*) {
        Out& at = static_cast<Out*>(y)[i];
        at = stored<Out>(r.first ? total : Combine{r.kind}(Total<A>(number(at)), total));
    });
}

template <class A>
__device__ void store_result(const Reduction& r, void* y, Total<A>* chunk_results, int64_t i,
                             Total<A> total) {
    if (chunk_results)
        chunk_results[int64_t(blockIdx.y) * r.outer * r.inner + i] = total;
    else
        finish<A>(r, y, i, total);
}

// inner = 1: a block reduces a chunk of a row.
template <class A>
__global__ void __launch_bounds__(threads)
    reduce_rows(const Reduction r, void* y, const void* x, Total<A>* chunk_results) {
    const int64_t row = blockIdx.x, begin = int64_t(blockIdx.y) * r.chunk,
                  end = smaller(r.n, begin + r.chunk);
    const Combine combine{r.kind};
    Total<A> total = identity<Total<A>>(r.kind);
    visit_computed<A>(r.in, [&]<class T>(T*) {
        const int64_t start = row * r.n + begin;
        const T* from = static_cast<const T*>(x) + start;
        each_number<Total<A>>(from, start, end - begin, r.packed,
                              [&](Total<A> v, int64_t) { total = combine(total, v); });
    });
    total = block_reduce(total, combine);
    if (threadIdx.x == 0) store_result<A>(r, y, chunk_results, row, total);
}

// inner > 1: a thread reduces a chunk of `width` neighbouring columns.
template <class A>
__global__ void __launch_bounds__(threads)
    reduce_columns(const Reduction r, void* y, const void* x, Total<A>* chunk_results) {
    visit_columns<A>(r.in, r.packed, x, [&](const auto* from, auto width) {
        const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
        if (i >= r.outer * r.inner) return;
        const int64_t begin = int64_t(blockIdx.y) * r.chunk, end = smaller(r.n, begin + r.chunk);
        from += i / r.inner * r.n * r.inner + i % r.inner;
        const Combine combine{r.kind};
        Total<A> total[width], v[width];
        for (int e = 0; e < width; ++e) total[e] = identity<Total<A>>(r.kind);
        for (int64_t j = begin; j < end; ++j) {
            load_pack<width>(from + j * r.inner, v);
            for (int e = 0; e < width; ++e) total[e] = combine(total[e], v[e]);
        }
        for (int e = 0; e < width; ++e) store_result<A>(r, y, chunk_results, i + e, total[e]);
    });
}

template <class A>
__global__ void __launch_bounds__(threads)
    combine_parts(const Reduction r, void* y, const Total<A>* chunk_results) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x, results = r.outer * r.inner;
    if (i >= results) return;
    const Combine combine{r.kind};
    Total<A> total = chunk_results[i];
    for (int64_t c = 1; c < r.chunks; ++c) total = combine(total, chunk_results[c * results + i]);
    finish<A>(r, y, i, total);
}

template <class A> void run_reduce(const KernelCall& call) {
    const auto& p = call.get<nn_reduce_params>();
    const bool sums = p.kind == sum || p.kind == product;
    Reduction r{p.outer, p.n, p.inner};
    r.chunk = larger<int64_t>(p.n, 1);
    r.scale = p.scale, r.kind = p.kind, r.first = p.first != 0;
    r.in = call.dtype, r.out = sums ? accumulator(call.dtype) : call.dtype;
    const int64_t results = r.outer * r.inner;
    if (results == 0) return;
    // About a thousand blocks, enough for any GPU, of chunks that are not too short.
    const int64_t shortest = r.inner == 1 ? 4096 : 64;
    const void* x = call.input<void>(1);
    const int64_t width = columns_width(call, x, r.inner);
    r.packed = width > 1;
    const int64_t blocks = r.inner == 1 ? results : ceil_div(results, threads * width);
    r.chunks = smaller(ceil_div(1024, blocks), ceil_div(r.chunk, shortest));
    r.chunk = ceil_div(r.chunk, r.chunks);
    r.chunks = larger<int64_t>(1, ceil_div(p.n, r.chunk));
    Total<A>* chunk_results = nullptr;
    if (r.chunks > 1 && !(chunk_results = workspace<Total<A>>(call, r.chunks * results))) return;
    void* y = call.operand<void>(0);
    const unsigned chunks = unsigned(r.chunks);
    if (r.inner == 1)
        launch(call, {dim3(unsigned(r.outer), chunks), threads_for(r.chunk, 4, threads)},
               reduce_rows<A>, r, y, x, chunk_results);
    else
        launch(call, {dim3(unsigned(blocks), chunks), threads}, reduce_columns<A>, r, y, x,
               chunk_results);
    if (chunk_results) launch_each(call, results, 1, combine_parts<A>, r, y, chunk_results);
}

void reduce(const KernelCall& call) {
    if (call.dtype == Dtype::f64) return run_reduce<double>(call);
    if (is_float(call.dtype)) return run_reduce<float>(call);
    run_reduce<int64_t>(call);
}

// --- positions ---

template <class A> struct Best {
    A value;
    int64_t index;  // -1: none yet
};

// Whether x is preferred to y: NaN to numbers, and of equals the first.
template <class A> __device__ bool ahead(int kind, const Best<A>& x, const Best<A>& y) {
    if (x.index < 0 || y.index < 0) return y.index < 0 && x.index >= 0;
    const bool x_nan = x.value != x.value, y_nan = y.value != y.value;
    if (x_nan || y_nan) return x_nan && (!y_nan || x.index < y.index);
    if (x.value == y.value) return x.index < y.index;
    return kind == largest ? x.value > y.value : x.value < y.value;
}

struct Search {
    int64_t outer, n, inner, start;
    int kind;
    bool first, packed;
    Dtype dtype;
};

// Combines the result of this tile with that of earlier calls, whose tiles may lie after it.
template <class A>
__device__ void record(const Search& s, int64_t* index, void* value, int64_t i, Best<A> best) {
    best.index += s.start;
    visit_computed<A>(s.dtype, [&]<class T>(T*) {
        T& at = static_cast<T*>(value)[i];
        if (!s.first && !ahead(s.kind, best, Best<A>{A(number(at)), index[i]})) return;
        at = stored<T>(best.value);
        index[i] = best.index;
    });
}

template <class A>
__global__ void __launch_bounds__(threads)
    search_rows(const Search s, int64_t* index, void* value, const void* x) {
    __shared__ A values[threads];
    __shared__ int64_t indices[threads];
    const int64_t row = blockIdx.x;
    Best<A> best{A(0), -1};
    visit_computed<A>(s.dtype, [&]<class T>(T*) {
        const T* from = static_cast<const T*>(x) + row * s.n;
        each_number<A>(from, row * s.n, s.n, s.packed, [&](A v, int64_t j) {
            if (const Best<A> here{v, j}; ahead(s.kind, here, best)) best = here;
        });
    });
    values[threadIdx.x] = best.value, indices[threadIdx.x] = best.index;
    for (unsigned step = threads / 2; step; step /= 2) {
        __syncthreads();
        if (threadIdx.x >= step) continue;
        const Best<A> other{values[threadIdx.x + step], indices[threadIdx.x + step]};
        if (!ahead(s.kind, other, best)) continue;
        best = other;
        values[threadIdx.x] = best.value, indices[threadIdx.x] = best.index;
    }
    if (threadIdx.x == 0) record(s, index, value, row, best);
}

template <class A>
__global__ void __launch_bounds__(threads)
    search_columns(const Search s, int64_t* index, void* value, const void* x) {
    visit_columns<A>(s.dtype, s.packed, x, [&](const auto* from, auto width) {
        const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
        if (i >= s.outer * s.inner) return;
        from += i / s.inner * s.n * s.inner + i % s.inner;
        Best<A> best[width];
        for (int e = 0; e < width; ++e) best[e] = {A(0), -1};
        for (int64_t j = 0; j < s.n; ++j) {
            A v[width];
            load_pack<width>(from + j * s.inner, v);
            for (int e = 0; e < width; ++e)
                if (const Best<A> here{v[e], j}; ahead(s.kind, here, best[e])) best[e] = here;
        }
        for (int e = 0; e < width; ++e) record(s, index, value, i + e, best[e]);
    });
}

template <class A> void run_search(const KernelCall& call) {
    const auto& p = call.get<nn_argreduce_params>();
    const void* x = call.input<void>(2);
    const int64_t width = columns_width(call, x, p.inner);
    const Search s{p.outer, p.n, p.inner, p.start, p.kind, p.first != 0, width > 1, call.dtype};
    const int64_t results = p.outer * p.inner;
    if (results == 0) return;
    int64_t* index = call.operand<int64_t>(0);
    void* value = call.operand<void>(1);
    if (p.inner == 1)
        launch(call, {blocks_for(results, 1), threads}, search_rows<A>, s, index, value, x);
    else
        launch_each(call, results, width, search_columns<A>, s, index, value, x);
}

void argreduce(const KernelCall& call) {
    const auto& p = call.get<nn_argreduce_params>();
    if (p.n == 0)
        return call.fail("an empty axis has no %s element",
                         p.kind == largest ? "largest" : "smallest");
    if (call.dtype == Dtype::f64) return run_search<double>(call);
    if (is_float(call.dtype)) return run_search<float>(call);
    run_search<int64_t>(call);
}

NN_IMPLEMENT(reduce, argreduce);

}  // namespace
}  // namespace nn::NN_TARGET
