// The operations of attention and of its gradient, in the order of NVIDIA's cudnn-frontend 1.x.
// cuDNN 9 recognises the pattern and fuses it into a flash attention kernel, which skips blocks of
// keys above the diagonal.
#if defined(NN_CUDNN)
#include "kernels/cuda/attention_graph.h"

namespace nn::NN_TARGET {
namespace {

// Before 9.16 the backward pass needs a padding mask for lengths that are no multiple of 128.
constexpr size_t any_length = 91600;

struct Tensors {
    const AttentionCase& c;
    CudnnGraph& g;

    Extent4 q_dim() const { return {c.batch, c.heads, c.len, c.head_dim}; }
    Extent4 kv_dim() const { return {c.batch, c.kv_heads, c.len, c.head_dim}; }
    Extent4 in_stride() const { return {c.len * c.width, c.head_dim, c.width, 1}; }
    Extent4 out_stride() const { return {c.len * c.out_width, c.head_dim, c.out_width, 1}; }

    GraphTensor packed(int64_t uid, const Extent4& dim) const {  // q, v, dq, dk, dv
        return g.memory(uid, CUDNN_DATA_BFLOAT16, dim, in_stride());
    }
    // k and v with their last two axes exchanged
    GraphTensor exchanged(int64_t uid) const {
        const Extent4 d = kv_dim(), s = in_stride();
        return g.memory(uid, CUDNN_DATA_BFLOAT16, {d[0], d[1], d[3], d[2]},
                        {s[0], s[1], s[3], s[2]});
    }
    GraphTensor out(int64_t uid) const {
        return g.memory(uid, CUDNN_DATA_BFLOAT16, q_dim(), out_stride());
    }
    GraphTensor row(int64_t uid) const {
        return g.memory(uid, CUDNN_DATA_FLOAT, {c.batch, c.heads, c.len, 1},
                        {c.heads * c.len, c.len, 1, 1});
    }
    GraphTensor mask(const GraphTensor& scores) const {
        if (!c.causal) return scores;
        const GraphTensor row = g.index(scores, 2), column = g.index(scores, 3);
        const GraphTensor seen = g.pointwise(CUDNN_POINTWISE_CMP_GE, {row, column});
        return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                           {scores, g.by_value(tensor_masked), seen});
    }
};

void forward(const AttentionCase& c, CudnnGraph& g) {
    const Tensors t{c, g};
    const GraphTensor q = t.packed(tensor_q, t.q_dim()), k = t.exchanged(tensor_k);
    GraphTensor s = g.matmul(q, k);
    s = g.pointwise(CUDNN_POINTWISE_MUL, {s, g.by_value(tensor_scale)});
    s = t.mask(s);
    const GraphTensor top = g.reduce_columns(CUDNN_REDUCE_TENSOR_MAX, s);
    s = g.pointwise(CUDNN_POINTWISE_SUB, {s, top});
    const GraphTensor weight = g.pointwise(CUDNN_POINTWISE_EXP, {s});
    const GraphTensor sum = g.reduce_columns(CUDNN_REDUCE_TENSOR_ADD, weight);
    const GraphTensor log = g.pointwise(CUDNN_POINTWISE_LOG, {sum});
    g.pointwise(CUDNN_POINTWISE_ADD, {top, log}, t.row(tensor_lse));
    const GraphTensor p = g.temporary(CUDNN_DATA_BFLOAT16, weight.dim);
    g.pointwise(CUDNN_POINTWISE_DIV, {weight, sum}, p);
    g.matmul(p, t.packed(tensor_v, t.kv_dim()), t.out(tensor_o));
}

// The tensor (batch, kv_heads, len, head_dim) = a b, summed over the query heads of a kv head.
void into_shared(const Tensors& t, const GraphTensor& a, const GraphTensor& b, int64_t uid) {
    const GraphTensor to = t.packed(uid, t.kv_dim());
    if (t.c.heads == t.c.kv_heads) return t.g.matmul(a, b, to);
    const GraphTensor each = t.g.temporary(CUDNN_DATA_BFLOAT16, t.q_dim());
    t.g.matmul(a, b, each);
    t.g.reduce(CUDNN_REDUCE_TENSOR_ADD, each, to);
}

void backward(const AttentionCase& c, CudnnGraph& g) {
    const Tensors t{c, g};
    const GraphTensor q = t.packed(tensor_q, t.q_dim()), k = t.exchanged(tensor_k),
                      v = t.exchanged(tensor_v), dout = t.out(tensor_do),
                      scale = g.by_value(tensor_scale);
    const GraphTensor products = g.pointwise(CUDNN_POINTWISE_MUL, {dout, t.out(tensor_o)});
    const GraphTensor sums = g.reduce_columns(CUDNN_REDUCE_TENSOR_ADD, products),
                      delta = t.row(tensor_delta);
    g.pointwise(CUDNN_POINTWISE_MUL, {sums, g.by_value(tensor_one)}, delta);

    GraphTensor s = g.matmul(q, k);
    s = g.pointwise(CUDNN_POINTWISE_MUL, {s, scale});
    s = g.pointwise(CUDNN_POINTWISE_SUB, {s, t.row(tensor_lse)});
    const GraphTensor p = g.pointwise(CUDNN_POINTWISE_EXP, {t.mask(s)});
    into_shared(t, g.transposed(p, CUDNN_DATA_BFLOAT16), dout, tensor_dv);

    GraphTensor ds = g.matmul(dout, v);
    ds = g.pointwise(CUDNN_POINTWISE_SUB, {ds, delta});
    ds = g.pointwise(CUDNN_POINTWISE_MUL, {ds, p});
    ds = g.pointwise(CUDNN_POINTWISE_MUL, {ds, scale});
    into_shared(t, g.transposed(ds, CUDNN_DATA_BFLOAT16), q, tensor_dk);

    const GraphTensor keys = g.transposed(k, CUDNN_DATA_BFLOAT16),
                      dq = t.packed(tensor_dq, t.q_dim());
    if (!c.sums_dq()) return g.matmul(ds, keys, dq);
    const GraphTensor sum =
        g.memory(tensor_dq_sum, CUDNN_DATA_FLOAT, t.q_dim(),
                 {c.heads * c.len * c.head_dim, c.len * c.head_dim, c.head_dim, 1});
    g.matmul(ds, keys, sum);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, {sum}, dq);
}

}  // namespace

ExecutionPlan attention_plan(const AttentionCase& c, cudnnHandle_t handle,
                             cudnnBackendDescriptor_t device, CudnnFailure& failure) {
    if (c.backward && c.len % 128 != 0 && cudnn().version < any_length) {
        failure = {CUDNN_STATUS_NOT_SUPPORTED, "the choice of a plan",
                   "before 9.16 the gradient needs a length that is a multiple of 128"};
        return {};
    }
    CudnnGraph graph(failure);
    c.backward ? backward(c, graph) : forward(c, graph);
    Descriptor finished = graph.finish(handle);
    ExecutionPlan plan = make_plan(finished, handle, device, failure);
    for (Descriptor& d : graph.release()) plan.descriptors.push_back(std::move(d));
    plan.descriptors.push_back(std::move(finished));
    return plan;
}

}  // namespace nn::NN_TARGET
#endif
