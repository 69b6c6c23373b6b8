// The check of T5's bias by distance, for the ops of attention.
#pragma once
#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "kernels/relative_bias.h"

namespace nn {

// The input `bias` (buckets, heads) in one tile, or none; sets p.buckets and p.max_distance.
template <class P> Tensor relative_bias(const Call& c, P& p, bool causal) {
    const Tensor& bias = c.in("bias");
    p.max_distance = c.integer("max_distance");
    if (!bias) return {};
    c.need(bias.rank() == 2 && bias.dim(1) == p.heads && bias.dim(0) <= baseline::max_buckets,
           "bias is {}; it must be (buckets, {}), with at most {} buckets", bias, p.heads,
           baseline::max_buckets);
    p.buckets = bias.dim(0);
    const int64_t exact = p.buckets / (causal ? 2 : 4);
    c.need(exact >= 1 && p.max_distance > exact && p.max_distance <= 1 << 24,
           "max_distance is {}; for {} buckets, a number from {} to 2^24 is needed", p.max_distance,
           p.buckets, exact + 1);
    c.need_dtype("bias", c.in("qkv").dtype());
    return retile(bias, Grid::whole(bias.shape()));
}

}  // namespace nn
