// The axes of a block copy as the CPU and CUDA kernels walk through them.
#pragma once
#include "kernels/kernel.h"

namespace nn::NN_ISA {

struct CopyAxis {
    int64_t extent, src_stride, dst_stride;
};
// Axes from the slowest in dst to the fastest, merged where both sides walk through two as one.
struct CopyPlan {
    int ndim = 0;
    CopyAxis axis[8];
    int64_t total = 1;  // elements
};

inline CopyPlan make_copy_plan(const nn_copy_params& p) {
    CopyPlan plan;
    for (int64_t d = 0; d < p.ndim; ++d) {
        plan.total *= p.extent[d];
        if (p.extent[d] == 1) continue;
        const CopyAxis axis = {p.extent[d], p.src_stride[d], p.dst_stride[d]};
        int at = plan.ndim++;
        for (; at && plan.axis[at - 1].dst_stride < axis.dst_stride; --at)
            plan.axis[at] = plan.axis[at - 1];
        plan.axis[at] = axis;
    }
    int merged = 0;
    for (int d = 1; d < plan.ndim; ++d) {
        CopyAxis& slow = plan.axis[merged];
        const CopyAxis& fast = plan.axis[d];
        if (slow.src_stride == fast.src_stride * fast.extent &&
            slow.dst_stride == fast.dst_stride * fast.extent)
            slow = {slow.extent * fast.extent, fast.src_stride, fast.dst_stride};
        else
            plan.axis[++merged] = fast;
    }
    if (plan.ndim) plan.ndim = merged + 1;
    return plan;
}

}  // namespace nn::NN_ISA
