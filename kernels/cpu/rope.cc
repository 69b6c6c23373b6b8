// Rotary position embedding of the heads of packed rows.
#include "kernels/rope.h"

#include "kernels/cpu/row.h"
#include "kernels/math/angle.h"
#include "kernels/params/rope.h"

namespace nn::NN_TARGET {
namespace {

// Angles are products of a position and a frequency rounded to A, as in transformers.
template <class A> void turns(const nn_rope_params& p, const A* frequency, int64_t position, A* s) {
    const int64_t half = p.rotated / 2;
    A* const c = s + half;
    const A at = A(position), scale = A(p.scale), sign = p.inverse ? -scale : scale;
    simd_for(half, [=](int64_t j) {
        math::sin_cos(at * frequency[j], s + j, c + j);
        s[j] *= sign;
        c[j] *= scale;
    });
}

// sines: of the row, then its cosines.
template <class T> void rotate_row(const nn_rope_params& p, const Acc<T>* sines, const T* x, T* y) {
    using A = Acc<T>;
    const int64_t half = p.rotated / 2;
    const A* const cosines = sines + half;
    for (int64_t h = 0; h < p.heads; ++h, x += p.head_dim, y += p.head_dim) {
        simd_for(half, [=](int64_t j) {
            const A a = A(x[j]), b = A(x[j + half]), s = sines[j], c = cosines[j];
            y[j] = T(a * c - b * s);
            y[j + half] = T(b * c + a * s);
        });
        row_convert(x + p.rotated, p.head_dim - p.rotated, y + p.rotated);
    }
    row_convert(x, p.width - p.heads * p.head_dim, y);
}

void rope(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_rope_params>();
    const bool given = call.input<void>(2);
    const Indices start(call, 2, p.start_dtype);
    const int64_t half = p.rotated / 2;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        A* const frequency = scratch.get<A>(half + p.len * p.rotated);
        A* const table = frequency + half;  // sines and cosines of each position
        for (int64_t j = 0; j < half; ++j) frequency[j] = A(rope_frequency(p, j));
        T* y = call.operand<T>(0);
        const T* x = call.input<T>(1);
        for (int64_t b = 0; b < p.batch; ++b) {
            const int64_t first = p.start + (given ? start[b] : 0);
            for (int64_t t = 0; t < p.len; ++t, x += p.width, y += p.width) {
                if (b == 0 || given) turns(p, frequency, first + t, table + t * p.rotated);
                rotate_row(p, table + t * p.rotated, x, y);
            }
        }
    });
}

NN_IMPLEMENT(rope);

}  // namespace
}  // namespace nn::NN_TARGET
