// The backward pass of linear's GELU epilogue: dpre and the bias gradient in one sweep. column_sum
// is the bias gradient of a linear layer without GELU.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gelu.h"
#include "kernels/math/activations.h"
#include "kernels/params/gelu.h"

namespace nn::NN_TARGET {
namespace {

// dpre = dy GELU'(pre); its sums over rows are the bias gradient.
template <class T> struct GeluSource {
    static constexpr int outputs = 1;
    T* dpre;
    const T *dy, *pre;
    int64_t ld;
    template <int width>
    __device__ void add(int64_t row, int64_t column, Acc<T> (&sums)[1][width]) const {
        const int64_t at = row * ld + column;
        Acc<T> d[width], x[width];
        load_pack<width>(dy + at, d);
        load_pack<width>(pre + at, x);
#pragma unroll
        for (int e = 0; e < width; ++e) {
            d[e] *= math::gelu_slope<MathFor<T>>(x[e]);
            sums[0][e] += d[e];
        }
        store_pack<width>(dpre + at, d);
    }
};

void gelu_bias_backward(const KernelCall& call) {
    const auto& p = call.get<nn_gelu_bias_backward_params>();
    gelu_backward(call, {call.operand<void>(0), call.operand<void>(1), call.input<void>(2),
                         call.input<void>(3), p.rows, p.cols, p.cols, p.first != 0});
}

template <class T> struct PlainSource {
    static constexpr int outputs = 1;
    const T* x;
    int64_t cols;
    template <int width>
    __device__ void add(int64_t row, int64_t column, Acc<T> (&sums)[1][width]) const {
        Acc<T> v[width];
        load_pack<width>(x + row * cols + column, v);
#pragma unroll
        for (int e = 0; e < width; ++e) sums[0][e] += v[e];
    }
};

void column_sum(const KernelCall& call) {
    const auto& p = call.get<nn_column_sum_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        const PlainSource<T> source{call.input<T>(1), p.cols};
        sum_columns<T>(call, source, p.rows, p.cols, rows_packed<T>(p.cols, source.x), p.first != 0,
                       {call.operand<Acc<T>>(0), nullptr});
    });
}

NN_IMPLEMENT(gelu_bias_backward, column_sum);

}  // namespace

void gelu_backward(const KernelCall& call, const GeluBackward& g) {
    visit_float(call.dtype, [&]<class T>(T*) {
        const GeluSource<T> source{static_cast<T*>(g.dpre), static_cast<const T*>(g.dy),
                                   static_cast<const T*>(g.pre), g.ld};
        const bool packed = rows_packed<T>(g.cols, g.dpre, g.dy, g.pre) && g.ld % lanes16<T> == 0;
        sum_columns<T>(call, source, g.rows, g.cols, packed, g.first,
                       {static_cast<Acc<T>*>(g.dbias), nullptr});
    });
}

}  // namespace nn::NN_TARGET
