// Copies between tiles of one dtype: slices, permuted axes, other tilings. Elements that are
// contiguous on both sides are copied up to 16 bytes at a time. If the fastest axes differ, blocks
// are transposed in shared memory.
#include <utility>

#include "kernels/copy_loop.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/params/copy.h"

namespace nn::NN_TARGET {
namespace {

constexpr int side = 32;  // of a block of a transpose

// Offsets of element i of the axes [0, ndim), the last of which is the fastest.
__device__ inline void offsets(const CopyLoop& loop, int ndim, int64_t i, bool small, int64_t* src,
                               int64_t* dst) {
    for (int d = ndim - 1; d >= 0; --d) {
        const CopyAxis& axis = loop.axis[d];
        const int64_t above = small ? uint32_t(i) / uint32_t(axis.extent) : i / axis.extent;
        const int64_t index = i - above * axis.extent;
        *src += index * axis.src_stride;
        *dst += index * axis.dst_stride;
        i = above;
    }
}

template <class U> __global__ void copy_kernel(const CopyLoop loop, U* dst, const U* src) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= loop.total) return;
    int64_t s = 0, d = 0;
    offsets(loop, loop.ndim, i, loop.total <= 0x7FFFFFFF, &s, &d);
    dst[d] = src[s];
}

// The last axis (j) is contiguous in dst, the one before it (i) in src. A thread block copies
// side x side elements.
template <class U> __global__ void transpose_kernel(const CopyLoop loop, U* dst, const U* src) {
    __shared__ U block[side][side + 1];
    const CopyAxis i_axis = loop.axis[loop.ndim - 2], j_axis = loop.axis[loop.ndim - 1];
    const int64_t i_blocks = (i_axis.extent + side - 1) / side,
                  j_blocks = (j_axis.extent + side - 1) / side;
    const int64_t number = blockIdx.x, outer = number / (i_blocks * j_blocks),
                  inner = number % (i_blocks * j_blocks);
    const int64_t i0 = inner / j_blocks * side, j0 = inner % j_blocks * side;
    int64_t s = 0, d = 0;
    offsets(loop, loop.ndim - 2, outer, false, &s, &d);
    const int x = int(threadIdx.x) % side, y0 = int(threadIdx.x) / side;
    for (int y = y0; y < side; y += int(threads) / side)
        if (j0 + y < j_axis.extent && i0 + x < i_axis.extent)
            block[y][x] = src[s + (j0 + y) * j_axis.src_stride + i0 + x];
    __syncthreads();
    for (int y = y0; y < side; y += int(threads) / side)
        if (i0 + y < i_axis.extent && j0 + x < j_axis.extent)
            dst[d + (i0 + y) * i_axis.dst_stride + j0 + x] = block[x][y];
}

// The number of elements, a power of two and at most 16 bytes, that can be copied as one: the last
// axis is contiguous on both sides, and extents, strides and addresses are multiples of it.
int64_t pack_size(const CopyLoop& loop, const void* dst, const void* src, int64_t element) {
    const CopyAxis& row = loop.axis[loop.ndim - 1];
    if (row.src_stride != 1 || row.dst_stride != 1) return 1;
    int64_t n = 16 / element;
    const auto fits = [&](int64_t value) { return value % n == 0; };
    for (; n > 1; n /= 2) {
        bool good = aligned(dst, size_t(n * element)) && aligned(src, size_t(n * element)) &&
                    fits(row.extent);
        for (int d = 0; d < loop.ndim - 1; ++d)
            good = good && fits(loop.axis[d].src_stride) && fits(loop.axis[d].dst_stride);
        if (good) break;
    }
    return n;
}

template <class U>
void run_transpose(const KernelCall& call, const CopyLoop& loop, void* dst, const void* src) {
    int64_t blocks = ceil_div(loop.axis[loop.ndim - 2].extent, side) *
                     ceil_div(loop.axis[loop.ndim - 1].extent, side);
    for (int d = 0; d < loop.ndim - 2; ++d) blocks *= loop.axis[d].extent;
    launch(call, {blocks_for(blocks, 1), threads}, transpose_kernel<U>, loop, dst, src);
}

void copy(const KernelCall& call) {
    const auto& p = call.get<nn_copy_params>();
    CopyLoop loop = make_copy_loop(p);
    if (loop.total == 0) return;
    const int64_t element = int64_t(dtype_size(call.dtype));
    char* dst = call.operand<char>(0) + p.dst_offset * element;
    const char* src = call.input<char>(1) + p.src_offset * element;
    if (loop.ndim == 0) loop.axis[loop.ndim++] = {1, 1, 1};
    const int row = loop.ndim - 1;
    int contiguous = row;  // in src
    for (int d = 0; d < row; ++d)
        if (loop.axis[d].src_stride == 1) contiguous = d;
    const bool transposes =
        contiguous != row && loop.axis[row].src_stride != 1 && loop.axis[row].dst_stride == 1;
    if (transposes && loop.axis[contiguous].extent >= 8 && loop.axis[row].extent >= 8) {
        std::swap(loop.axis[contiguous], loop.axis[row - 1]);
        return visit_size(element, [&]<class U>(U*) { run_transpose<U>(call, loop, dst, src); });
    }
    const int64_t n = pack_size(loop, dst, src, element);
    if (n > 1) {
        loop.total /= n;
        loop.axis[row].extent /= n;
        for (int d = 0; d < row; ++d) loop.axis[d].src_stride /= n, loop.axis[d].dst_stride /= n;
    }
    const auto run = [&]<class U>(U*) {
        launch_each(call, loop.total, 1, copy_kernel<U>, loop, dst, src);
    };
    if (n * element == 16) return run((uint4*)nullptr);
    visit_size(n * element, run);
}

NN_IMPLEMENT(copy);

}  // namespace
}  // namespace nn::NN_TARGET
