// The nested loop of a block copy, for the CPU and CUDA kernels.
#pragma once
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/params/copy.h"

namespace nn::NN_TARGET {

struct CopyAxis {
    int64_t extent, src_stride, dst_stride;
};
// Axes by falling stride in dst; neighbours that are contiguous on both sides are merged.
struct CopyLoop {
    int ndim = 0;
    CopyAxis axis[8];
    int64_t total = 1;  // elements
};

inline CopyLoop make_copy_loop(const nn_copy_params& p) {
    CopyLoop loop;
    for (int64_t d = 0; d < p.ndim; ++d) {
        loop.total *= p.extent[d];
        if (p.extent[d] == 1) continue;
        const CopyAxis axis = {p.extent[d], p.src_stride[d], p.dst_stride[d]};
        int at = loop.ndim++;
        for (; at && loop.axis[at - 1].dst_stride < axis.dst_stride; --at)
            loop.axis[at] = loop.axis[at - 1];
        loop.axis[at] = axis;
    }
    int merged = 0;
    for (int d = 1; d < loop.ndim; ++d) {
        CopyAxis& slow = loop.axis[merged];
        const CopyAxis& fast = loop.axis[d];
        if (slow.src_stride == fast.src_stride * fast.extent &&
            slow.dst_stride == fast.dst_stride * fast.extent)
            slow = {slow.extent * fast.extent, fast.src_stride, fast.dst_stride};
        else
            loop.axis[++merged] = fast;
    }
    if (loop.ndim) loop.ndim = merged + 1;
    return loop;
}

}  // namespace nn::NN_TARGET
