// Convolutions of images as matrix products: some rows of an image's windows at a time become the
// columns of a matrix in scratch memory, small enough for the cache. One image follows the other,
// so the bits do not depend on how the images are cut into tiles.
#include "kernels/params/conv.h"

#include "kernels/blas.h"
#include "kernels/cpu/row.h"
#include "kernels/products/products.h"
#include "kernels/window.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t column_bytes = 1 << 19;

// Sizes of one image and one group.
struct Sizes {
    const nn_conv_params& p;
    int64_t channels, outputs, depth, area, rows;  // rows: output rows of a block
    Sizes(const nn_conv_params& params, size_t element)
        : p(params),
          channels(p.channels / p.groups),
          outputs(p.outputs / p.groups),
          depth(channels * p.y.taps * p.x.taps),
          area(p.y.out * p.x.out),
          rows(std::clamp<int64_t>(column_bytes / int64_t(element) / (depth * p.x.out), 1,
                                   p.y.out)) {}
    int64_t plane() const { return p.y.in * p.x.in; }
    int64_t columns() const { return depth * rows * p.x.out; }
    // Offsets of a group of an image, and of a row of it in the result.
    int64_t input_at(int64_t image, int64_t group) const {
        return (image * p.channels + group * channels) * plane();
    }
    int64_t output_at(int64_t image, int64_t group, int64_t row) const {
        return (image * p.outputs + group * outputs) * area + row * p.x.out;
    }
};

void product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
             int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
    products::gemm(trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}
void product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double* a,
             int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
    blas::gemm(trans_a, trans_b, m, n, k, 1.0, a, lda, b, ldb, beta, c, ldc);
}

// Rows (m, n) of x, `ld` apart, in the dtype of sums: x itself with that ld, or a copy without
// gaps.
template <class T> struct Block {
    const Acc<T>* data;
    int64_t ld;
    Block(const T* x, int64_t stride, int64_t m, int64_t n, Scratch& scratch) {
        if constexpr (std::is_same_v<T, Acc<T>>) {
            data = x, ld = stride;
        } else {
            Acc<T>* const copy = scratch.get<Acc<T>>(m * n);
            for (int64_t i = 0; i < m; ++i) row_convert(x + i * stride, n, copy + i * n);
            data = copy, ld = n;
        }
    }
};

// Memory for n sums: y itself if it has their dtype.
template <class T> Acc<T>* sums_for(T* y, int64_t n, Scratch& scratch) {
    if constexpr (std::is_same_v<T, Acc<T>>)
        return y;
    else
        return scratch.get<Acc<T>>(n);
}

// Calls f(row, column, from, span): row `row` of the matrix has at `column` the elements of `span`
// from x + from on, a stride apart. An empty span is one of a row of padding only.
template <class F> void each_span(const Sizes& s, int64_t first, int64_t rows, F f) {
    int64_t row = 0;
    for (int64_t c = 0; c < s.channels; ++c)
        for (int64_t ky = 0; ky < s.p.y.taps; ++ky)
            for (int64_t kx = 0; kx < s.p.x.taps; ++kx, ++row) {
                const Span inside = outputs_inside(s.p.x, kx);
                for (int64_t o = 0; o < rows; ++o) {
                    const int64_t y = window_at(s.p.y, first + o, ky);
                    const bool padding = y < 0 || y >= s.p.y.in;
                    f(row, o * s.p.x.out, c * s.plane() + y * s.p.x.in + window_at(s.p.x, 0, kx),
                      padding ? Span{0, 0} : inside);
                }
            }
}

// The columns (depth, rows * x.out) of output rows [first, first + rows).
template <class T>
void to_columns(const Sizes& s, const T* x, int64_t first, int64_t rows, Acc<T>* columns) {
    const int64_t width = s.p.x.out, stride = s.p.x.stride;
    each_span(s, first, rows, [=](int64_t row, int64_t column, int64_t from, Span inside) {
        Acc<T>* const to = columns + row * rows * width + column;
        const T* const start = x + from;
        row_fill(to, inside.begin, Acc<T>(0));
        row_fill(to + inside.end, width - inside.end, Acc<T>(0));
        if (stride == 1)
            row_convert(start + inside.begin, inside.end - inside.begin, to + inside.begin);
        else
            for (int64_t j = inside.begin; j < inside.end; ++j) to[j] = Acc<T>(start[j * stride]);
    });
}

// The adjoint: adds the columns to the elements of x that they were taken from.
template <class A>
void add_columns(const Sizes& s, const A* columns, int64_t first, int64_t rows, A* x) {
    const int64_t width = s.p.x.out, stride = s.p.x.stride;
    each_span(s, first, rows, [=](int64_t row, int64_t column, int64_t from, Span inside) {
        const A* const source = columns + row * rows * width + column;
        A* const to = x + from;
        if (stride == 1)
            simd_for(inside.end - inside.begin,
                     [=, b = inside.begin](int64_t j) { to[b + j] += source[b + j]; });
        else
            for (int64_t j = inside.begin; j < inside.end; ++j) to[j * stride] += source[j];
    });
}

// Calls f(image, group, first, rows) for every block of output rows.
template <class F> void each_block(const Sizes& s, F f) {
    for (int64_t image = 0; image < s.p.images; ++image)
        for (int64_t group = 0; group < s.p.groups; ++group)
            for (int64_t first = 0; first < s.p.y.out; first += s.rows)
                f(image, group, first, std::min(s.rows, s.p.y.out - first));
}

template <class T> constexpr bool keeps_sums = std::is_same_v<T, Acc<T>>;

void conv2d(const KernelCall& call) {
    static thread_local Scratch weight_scratch, column_scratch, sum_scratch;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const Sizes s(call.get<nn_conv_params>(), sizeof(A));
        const T* const bias = call.input<T>(3);
        const Block<T> weight(call.input<T>(2), s.depth, s.p.outputs, s.depth, weight_scratch);
        A* const columns = column_scratch.get<A>(s.columns());
        each_block(s, [&](int64_t image, int64_t group, int64_t first, int64_t rows) {
            const int64_t n = rows * s.p.x.out, output = group * s.outputs;
            T* const y = call.operand<T>(0) + s.output_at(image, group, first);
            A* const sum = sums_for(y, s.outputs * n, sum_scratch);
            const int64_t ld = keeps_sums<T> ? s.area : n;
            to_columns(s, call.input<T>(1) + s.input_at(image, group), first, rows, columns);
            for (int64_t o = 0; bias && o < s.outputs; ++o)
                row_fill(sum + o * ld, n, A(bias[output + o]));
            product(false, false, s.outputs, n, s.depth, weight.data + output * s.depth, s.depth,
                    columns, n, A(bias ? 1 : 0), sum, ld);
            for (int64_t o = 0; !keeps_sums<T> && o < s.outputs; ++o)
                row_convert(sum + o * n, n, y + o * s.area);
        });
    });
}

void conv2d_input_backward(const KernelCall& call) {
    static thread_local Scratch weight_scratch, column_scratch, dy_scratch, sum_scratch;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const Sizes s(call.get<nn_conv_params>(), sizeof(A));
        const int64_t size = s.channels * s.plane();
        const Block<T> weight(call.input<T>(2), s.depth, s.p.outputs, s.depth, weight_scratch);
        A* const columns = column_scratch.get<A>(s.columns());
        each_block(s, [&](int64_t image, int64_t group, int64_t first, int64_t rows) {
            const int64_t n = rows * s.p.x.out;
            T* const dx = call.operand<T>(0) + s.input_at(image, group);
            A* const sum = sums_for(dx, size, sum_scratch);
            if (first == 0) row_fill(sum, size, A(0));
            const Block<T> dy(call.input<T>(1) + s.output_at(image, group, first), s.area,
                              s.outputs, n, dy_scratch);
            product(true, false, s.depth, n, s.outputs, weight.data + group * s.outputs * s.depth,
                    s.depth, dy.data, dy.ld, A(0), columns, n);
            add_columns(s, columns, first, rows, sum);
            if (!keeps_sums<T> && first + rows == s.p.y.out) row_convert(sum, size, dx);
        });
    });
}

void conv2d_weight_backward(const KernelCall& call) {
    static thread_local Scratch column_scratch, dy_scratch;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const Sizes s(call.get<nn_conv_params>(), sizeof(A));
        A *const dweight = call.operand<A>(0), *const dbias = call.operand<A>(1);
        A* const columns = column_scratch.get<A>(s.columns());
        if (s.p.first) row_fill(dweight, s.p.outputs * s.depth, A(0));
        if (s.p.first && dbias) row_fill(dbias, s.p.outputs, A(0));
        each_block(s, [&](int64_t image, int64_t group, int64_t first, int64_t rows) {
            const int64_t n = rows * s.p.x.out, output = group * s.outputs;
            const Block<T> dy(call.input<T>(2) + s.output_at(image, group, first), s.area,
                              s.outputs, n, dy_scratch);
            to_columns(s, call.input<T>(3) + s.input_at(image, group), first, rows, columns);
            product(false, true, s.outputs, s.depth, n, dy.data, dy.ld, columns, n, A(1),
                    dweight + output * s.depth, s.depth);
            for (int64_t o = 0; dbias && o < s.outputs; ++o) {
                const A* const row = dy.data + o * dy.ld;
                dbias[output + o] += simd_sum<A>(n, [=](int64_t j) { return row[j]; });
            }
        });
    });
}

NN_IMPLEMENT(conv2d, conv2d_input_backward, conv2d_weight_backward);

}  // namespace
}  // namespace nn::NN_TARGET
