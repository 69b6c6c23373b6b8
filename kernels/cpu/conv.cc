// Convolutions of images as matrix products: the windows of some rows of an image's result, or of a
// part of a long row, at a time become the columns of a matrix in scratch memory, small enough for
// the cache. One image follows the other, so the bits do not depend on how the images are cut into
// tiles.
#include "kernels/params/conv.h"

#include "kernels/blas.h"
#include "kernels/cpu/row.h"
#include "kernels/products/products.h"
#include "kernels/window.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t column_bytes = 1 << 19;
constexpr int64_t least_width = 512;  // columns of a part of a row: fewer make slow products

// Sizes of one image and one group.
struct Sizes {
    const nn_conv_params& p;
    int64_t channels, outputs, depth, area, width, rows;  // of a block: width of its rows, rows
    Sizes(const nn_conv_params& params, size_t element)
        : p(params),
          channels(p.channels / p.groups),
          outputs(p.outputs / p.groups),
          depth(channels * p.y.taps * p.x.taps),
          area(p.y.out * p.x.out),
          width(std::min(std::max(positions(element), least_width), p.x.out)),
          rows(std::clamp<int64_t>(positions(element) / p.x.out, 1, p.y.out)) {}
    // How many windows the memory for columns has room for.
    int64_t positions(size_t element) const { return column_bytes / int64_t(element) / depth; }
    int64_t plane() const { return p.y.in * p.x.in; }
    int64_t columns() const { return depth * rows * width; }
};

// Rows [row, row + rows) of a group of an image's result, and of these the positions
// [left, left + width): all, or those of one row.
struct Part {
    int64_t image, group, row, rows, left, width;
    int64_t size() const { return rows * width; }
    // Offsets of the group in x, and of the first position in the result.
    int64_t input_at(const Sizes& s) const {
        return (image * s.p.channels + group * s.channels) * s.plane();
    }
    int64_t output_at(const Sizes& s) const {
        return (image * s.p.outputs + group * s.outputs) * s.area + row * s.p.x.out + left;
    }
    bool begins_image() const { return row == 0 && left == 0; }
    bool ends_image(const Sizes& s) const {
        return row + rows == s.p.y.out && left + width == s.p.x.out;
    }
    // The positions of `span` inside the part, from its left.
    Span clipped(Span span) const {
        return {std::clamp<int64_t>(span.begin - left, 0, width),
                std::clamp<int64_t>(span.end - left, 0, width)};
    }
};

void product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
             int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
    products::gemm(products::choice().f32, trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c,
                   ldc);
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

// Calls f(at, from, span): the matrix has at `at` the elements of `span` from x + from on, a stride
// apart. An empty span is one of a row of padding only.
template <class F> void each_span(const Sizes& s, const Part& part, F f) {
    int64_t row = 0;
    for (int64_t c = 0; c < s.channels; ++c)
        for (int64_t ky = 0; ky < s.p.y.taps; ++ky)
            for (int64_t kx = 0; kx < s.p.x.taps; ++kx, ++row) {
                const Span inside = part.clipped(outputs_inside(s.p.x, kx));
                const int64_t x = window_at(s.p.x, part.left, kx);
                for (int64_t o = 0; o < part.rows; ++o) {
                    const int64_t y = window_at(s.p.y, part.row + o, ky);
                    const bool padding = y < 0 || y >= s.p.y.in;
                    f((row * part.rows + o) * part.width, c * s.plane() + y * s.p.x.in + x,
                      padding ? Span{0, 0} : inside);
                }
            }
}

// The columns (depth, rows * width) of a part.
template <class T> void to_columns(const Sizes& s, const T* x, const Part& part, Acc<T>* columns) {
    const int64_t width = part.width, stride = s.p.x.stride;
    each_span(s, part, [=](int64_t at, int64_t from, Span inside) {
        Acc<T>* const to = columns + at;
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
template <class A> void add_columns(const Sizes& s, const A* columns, const Part& part, A* x) {
    const int64_t stride = s.p.x.stride;
    each_span(s, part, [=](int64_t at, int64_t from, Span inside) {
        const A* const source = columns + at;
        A* const to = x + from;
        if (stride == 1)
            simd_for(inside.end - inside.begin,
                     [=, b = inside.begin](int64_t j) { to[b + j] += source[b + j]; });
        else
            for (int64_t j = inside.begin; j < inside.end; ++j) to[j * stride] += source[j];
    });
}

// Calls f(part) for all parts of the result, in order.
template <class F> void each_part(const Sizes& s, F f) {
    for (int64_t image = 0; image < s.p.images; ++image)
        for (int64_t group = 0; group < s.p.groups; ++group)
            for (int64_t row = 0; row < s.p.y.out; row += s.rows)
                for (int64_t left = 0; left < s.p.x.out; left += s.width)
                    f(Part{image, group, row, std::min(s.rows, s.p.y.out - row), left,
                           std::min(s.width, s.p.x.out - left)});
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
        each_part(s, [&](const Part& part) {
            const int64_t n = part.size(), output = part.group * s.outputs;
            T* const y = call.operand<T>(0) + part.output_at(s);
            A* const sum = sums_for(y, s.outputs * n, sum_scratch);
            const int64_t ld = keeps_sums<T> ? s.area : n;
            to_columns(s, call.input<T>(1) + part.input_at(s), part, columns);
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
        each_part(s, [&](const Part& part) {
            const int64_t n = part.size();
            T* const dx = call.operand<T>(0) + part.input_at(s);
            A* const sum = sums_for(dx, size, sum_scratch);
            if (part.begins_image()) row_fill(sum, size, A(0));
            const Block<T> dy(call.input<T>(1) + part.output_at(s), s.area, s.outputs, n,
                              dy_scratch);
            product(true, false, s.depth, n, s.outputs,
                    weight.data + part.group * s.outputs * s.depth, s.depth, dy.data, dy.ld, A(0),
                    columns, n);
            add_columns(s, columns, part, sum);
            if (!keeps_sums<T> && part.ends_image(s)) row_convert(sum, size, dx);
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
        each_part(s, [&](const Part& part) {
            const int64_t n = part.size(), output = part.group * s.outputs;
            const Block<T> dy(call.input<T>(2) + part.output_at(s), s.area, s.outputs, n,
                              dy_scratch);
            to_columns(s, call.input<T>(3) + part.input_at(s), part, columns);
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
