// Attention as a graph of cuDNN's operations, apart from where its tensors lie in memory: for
// attention_cudnn.cu, which runs it, and for tests/cudnn, which asks cuDNN whether it would.
#pragma once
#include <compare>

#include "kernels/cuda/cudnn.h"

namespace nn::NN_TARGET {

// All that a plan depends on. `width` and `out_width` are those of rows of qkv and of o, of which
// the graph may take some heads only.
struct AttentionCase {
    int64_t batch, heads, kv_heads, head_dim, len, width, out_width;
    bool causal, backward;
    bool same_bits;  // dq is a sum in a fixed order, for which all of dS goes to memory
    auto operator<=>(const AttentionCase&) const = default;

    int64_t rows() const { return batch * heads * len; }
    // Whether dq is added up in float, by atomics, in memory of the caller's.
    bool sums_dq() const { return backward && !same_bits; }
};

// The tensors of a graph by their uids. lse (log-sum-exp) and delta (rowsum(do o)) are float,
// (batch, heads, len), contiguous; so is dq_sum, (batch, heads, len, head_dim). The last three are
// floats on the host: the scale, -infinity and 1.
enum AttentionTensor : int64_t {
    tensor_q = 1,
    tensor_k,
    tensor_v,
    tensor_o,
    tensor_lse,
    tensor_do,
    tensor_dq,
    tensor_dk,
    tensor_dv,
    tensor_delta,
    tensor_dq_sum,
    tensor_scale,
    tensor_hidden,
    tensor_one
};

// `device` describes the GPU where there is no handle. An empty plan, with the failure noted, if
// cuDNN has none.
CudnnPlan attention_plan(const AttentionCase& c, cudnnHandle_t handle,
                         cudnnBackendDescriptor_t device, CudnnFailure& failure);

}  // namespace nn::NN_TARGET
