// Copies between tiles of one dtype: slices, permuted axes, other tilings. Rows are copied by
// memcpy, transposes by blocks.
#include "kernels/params/copy.h"

#include <utility>

#include "kernels/copy_loop.h"
#include "kernels/cpu/cpu.h"

namespace nn::NN_TARGET {
namespace {

// Calls f(src offset, dst offset) for every index of the first `ndim` axes.
template <class F> void each_index(const CopyLoop& loop, int ndim, F f) {
    int64_t index[8] = {}, src = 0, dst = 0;
    for (;;) {
        f(src, dst);
        int d = ndim - 1;
        for (; d >= 0; --d) {
            const CopyAxis& axis = loop.axis[d];
            src += axis.src_stride;
            dst += axis.dst_stride;
            if (++index[d] < axis.extent) break;
            src -= axis.extent * axis.src_stride;
            dst -= axis.extent * axis.dst_stride;
            index[d] = 0;
        }
        if (d < 0) return;
    }
}

template <class T> void copy_row(T* dst, const T* src, const CopyAxis& row) {
    if (row.src_stride == 1 && row.dst_stride == 1) {
        std::memcpy(dst, src, size_t(row.extent) * sizeof(T));
    } else {
        for (int64_t i = 0; i < row.extent; ++i) dst[i * row.dst_stride] = src[i * row.src_stride];
    }
}

// block[a][c] = from[c * stride + a] for 8 rows c; compiles to shuffles.
template <class T> void interleave(T* block, const T* from, int64_t stride, int64_t n) {
    simd_for(n, [=](int64_t a) {
        for (int64_t c = 0; c < 8; ++c) block[8 * a + c] = from[c * stride + a];
    });
}

// to[a, b] = from[b, a] for a < na, b < nb, both at most `side`: two cache lines of every row.
template <class T> constexpr int64_t side = sizeof(T) == 8 ? 16 : 128 / sizeof(T);
template <class T>
void transpose_block(T* to, int64_t to_stride, int64_t na, const T* from, int64_t from_stride,
                     int64_t nb) {
    if (na < side<T> || nb < side<T>) {
        for (int64_t a = 0; a < na; ++a)
            for (int64_t b = 0; b < nb; ++b) to[a * to_stride + b] = from[b * from_stride + a];
        return;
    }
    alignas(64) T block[side<T> / 8][side<T>][8];
    for (int64_t b = 0; b < side<T> / 8; ++b)
        interleave(block[b][0], from + 8 * b * from_stride, from_stride, side<T>);
    for (int64_t a = 0; a < side<T>; ++a)
        for (int64_t b = 0; b < side<T> / 8; ++b)
            std::memcpy(to + a * to_stride + 8 * b, block[b][a], 8 * sizeof(T));
}

// dst[i, j] = src[j, i] with j contiguous in dst and i in src. Through a block in the first-level
// cache, so that each cache line of either side is touched once, whatever the strides.
template <class T>
void transpose(T* dst, const T* src, const CopyAxis& i_axis, const CopyAxis& j_axis) {
    for (int64_t i = 0; i < i_axis.extent; i += side<T>)
        for (int64_t j = 0; j < j_axis.extent; j += side<T>)
            transpose_block(dst + i * i_axis.dst_stride + j, i_axis.dst_stride,
                            std::min(side<T>, i_axis.extent - i), src + j * j_axis.src_stride + i,
                            j_axis.src_stride, std::min(side<T>, j_axis.extent - j));
}

template <class T> void copy_elements(const nn_copy_params& p, T* dst, const T* src) {
    for (int64_t d = 0; d < p.ndim; ++d)
        if (p.extent[d] == 0) return;
    CopyLoop loop = make_copy_loop(p);
    dst += p.dst_offset;
    src += p.src_offset;
    if (loop.ndim == 0) {
        *dst = *src;
        return;
    }
    const int row = loop.ndim - 1;
    int contiguous = row;  // in src
    for (int d = 0; d < row; ++d)
        if (loop.axis[d].src_stride == 1) contiguous = d;
    if (contiguous == row || loop.axis[row].src_stride == 1 || loop.axis[row].dst_stride != 1) {
        each_index(loop, row,
                   [&](int64_t s, int64_t d) { copy_row(dst + d, src + s, loop.axis[row]); });
    } else {
        std::swap(loop.axis[contiguous], loop.axis[row - 1]);
        each_index(loop, row - 1, [&](int64_t s, int64_t d) {
            transpose(dst + d, src + s, loop.axis[row - 1], loop.axis[row]);
        });
    }
}

void copy(const KernelCall& call) {
    const auto& p = call.get<nn_copy_params>();
    const auto as = [&]<class T>(T*) { copy_elements<T>(p, call.operand<T>(0), call.input<T>(1)); };
    switch (dtype_size(call.dtype)) {
        case 1: return as((uint8_t*)nullptr);
        case 2: return as((uint16_t*)nullptr);
        case 4: return as((uint32_t*)nullptr);
        default: return as((uint64_t*)nullptr);
    }
}

NN_IMPLEMENT(copy);

}  // namespace
}  // namespace nn::NN_TARGET
