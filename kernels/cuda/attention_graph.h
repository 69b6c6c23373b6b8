// Attention as a graph of cuDNN's operations, without the addresses of its tensors.
// attention_cudnn.cu runs it; tests/cudnn checks without a GPU that cuDNN supports it.
#pragma once
#include <compare>

#include "kernels/cuda/cudnn.h"

namespace nn::NN_TARGET {

// Everything a plan depends on. `width` and `out_width` are the lengths of rows of qkv and of o;
// the graph may compute only some of their heads.
struct AttentionCase {
    int64_t batch, heads, kv_heads, head_dim, len, width = 0, out_width = 0;
    bool causal = false, backward = false;
    bool deterministic = false;  // dq is summed in a fixed order, which needs dS in memory
    auto operator<=>(const AttentionCase&) const = default;

    int64_t rows() const { return batch * heads * len; }
    // Whether dq is summed in float by atomics, in memory of the caller.
    bool sums_dq() const { return backward && !deterministic; }
};

// The uids of the tensors. lse (log-sum-exp) and delta (rowsum(do o)) are float, (batch, heads,
// len), contiguous; so is dq_sum, (batch, heads, len, head_dim). The last three are floats on the
// host: the scale, -infinity and 1.
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
    tensor_masked,
    tensor_one
};

// Without a handle, `device` describes the GPU. Sets `failure` if cuDNN has no plan.
ExecutionPlan attention_plan(const AttentionCase& c, cudnnHandle_t handle,
                             cudnnBackendDescriptor_t device, CudnnFailure& failure);

}  // namespace nn::NN_TARGET
