// The CPU kernels of every op in kernels/pointwise.inc. An op is a plain loop over contiguous
// arrays, compiled for each type computed in (float, double, int64). Other operands (bfloat16,
// other integers, strides, broadcast axes, scalars) are converted a block at a time, in the
// first-level cache. Contiguous f32 and f64 data is used in place, at memory speed.
#include "kernels/pointwise.h"

#include "kernels/cpu/row.h"

namespace nn::NN_TARGET::pointwise {
namespace {

// Elements converted at a time: four blocks of float fit into the first-level cache.
constexpr int64_t block = 1024;
constexpr int64_t short_row = 96;  // shorter rows share a block

struct Position {
    int64_t index[8] = {};

    void advance(const Layout& layout, int64_t n) {
        index[layout.ndim - 1] += n;
        for (int axis = layout.ndim - 1; axis > 0 && index[axis] >= layout.extent[axis]; --axis) {
            index[axis - 1] += index[axis] / layout.extent[axis];
            index[axis] %= layout.extent[axis];
        }
    }
    int64_t offset(const Layout& layout, const Source& source) const {
        int64_t sum = 0;
        for (int axis = 0; axis < layout.ndim; ++axis) sum += index[axis] * source.stride[axis];
        return sum;
    }
};

template <class T, class S> void load_row(T* to, const S* from, int64_t stride, int64_t n) {
    if (stride == 1)
        simd_for(n, [=](int64_t i) { to[i] = T(from[i]); });
    else if (stride == 0)
        row_fill(to, n, T(*from));
    else
        for (int64_t i = 0; i < n; ++i) to[i] = T(from[i * stride]);
}

// to = elements [at, at + n) in the order of the output, possibly of several rows.
template <class T>
void load(T* to, const Layout& layout, const Source& source, Position at, int64_t n) {
    const int row = layout.ndim - 1;
    visit_any(source.dtype, [&]<class S>(S*) {
        const auto* data = reinterpret_cast<const S*>(source.data);
        while (n > 0) {
            const int64_t piece = std::min(n, layout.extent[row] - at.index[row]);
            load_row(to, data + at.offset(layout, source), source.stride[row], piece);
            at.advance(layout, piece);
            to += piece;
            n -= piece;
        }
    });
}

template <class T> void store(void* y, Dtype dtype, int64_t start, const T* from, int64_t n) {
    visit_any(dtype, [&]<class S>(S*) {
        S* to = static_cast<S*>(y) + start;
        simd_for(n, [=](int64_t i) { to[i] = S(from[i]); });
    });
}

// `out` and the `operands` are contiguous; the form reads only the operands it needs.
template <class Form, class T> void loop(void* out, const T* const* operands, int64_t n) {
    using Result = decltype(Form::apply(T(), T(), T(), T()));
    auto* y = static_cast<std::conditional_t<std::is_same_v<Result, bool>, uint8_t, T>*>(out);
    const T *a = operands[0], *b = operands[1], *c = operands[2], *d = operands[3];
    simd_for(n, [=](int64_t i) { y[i] = Form::apply(a[i], b[i], c[i], d[i]); });
}
template <class T> using Loop = void (*)(void* out, const T* const* operands, int64_t n);

// Runs `loop`, which writes elements of dtype `written`, over the tile; stores them as layout.out.
template <class T> void run(const Layout& layout, void* y, Dtype written, Loop<T> loop) {
    alignas(64) T buffer[5][block];
    const int row = layout.ndim - 1;
    const T* operand[4] = {buffer[0], buffer[1], buffer[2], buffer[3]};
    bool in_place[4], all_in_place = written == layout.out;
    for (int k = 0; k < layout.count; ++k) {
        const Source& source = layout.source[k];
        in_place[k] = source.data && source.dtype == computed<T> && source.stride[row] == 1;
        all_in_place = all_in_place && in_place[k];
        if (!source.data) row_fill(buffer[k], block, T(source.scalar));
    }
    const bool shared_blocks = layout.extent[row] < short_row && layout.ndim > 1;
    Position at;
    for (int64_t start = 0, n; start < layout.total; start += n, at.advance(layout, n)) {
        const int64_t rest_of_row = layout.extent[row] - at.index[row];
        n = shared_blocks ? layout.total - start : rest_of_row;
        if (shared_blocks || !all_in_place) n = std::min(n, block);
        for (int k = 0; k < layout.count; ++k) {
            const Source& source = layout.source[k];
            if (in_place[k] && n <= rest_of_row) {
                operand[k] = reinterpret_cast<const T*>(source.data) + at.offset(layout, source);
            } else if (source.data) {
                operand[k] = buffer[k];
                load(buffer[k], layout, source, at, n);
            }
        }
        if (written == layout.out) {
            loop(static_cast<char*>(y) + start * int64_t(dtype_size(written)), operand, n);
        } else {
            loop(buffer[4], operand, n);
            store(y, layout.out, start, buffer[4], n);
        }
    }
}

template <class Form, class T> void compute(const KernelCall& call, const Layout& layout) {
    const bool predicate = std::is_same_v<decltype(Form::apply(T(), T(), T(), T())), bool>;
    run<T>(layout, call.operand<void>(0), predicate ? Dtype::boolean : computed<T>, loop<Form, T>);
}

}  // namespace
}  // namespace nn::NN_TARGET::pointwise
