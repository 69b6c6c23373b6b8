// The tile rules: how an operation on tensors becomes tasks on tiles. Each is written once here and
// used by the ops. Where operands are cut differently, a rule first cuts them alike (retile), so
// every op works for every tiling.
#pragma once
#include "engine/op.h"
#include "engine/tensor.h"

namespace nn {

// --- cutting and copying --- (an absent tensor stays absent in retile and whole_tensor)
Tensor retile(const Tensor& x, const Grid& grid);  // x itself when it is cut that way already
Tensor recut(const Tensor& x, int axis, const Cuts& cuts);  // one axis
Tensor whole_axis(const Tensor& x, int axis);
Tensor whole_axes(const Tensor& x, int from, int to);  // axes [from, to)
Tensor whole_tensor(const Tensor& x);
Tensor cast(const Tensor& x, Dtype dtype);  // x itself when it has the dtype
Tensor filled(const Grid& grid, Dtype dtype, double value);
void fill_tile(const Tensor& x, int64_t tile, double value);
void copy_into(const Tensor& dst, const Tensor& src);  // same shape and dtype
Tensor copied(const Tensor& x);

// dst[dst_start + i] = src[j], where j[a] = src_start[a] + i[k] for the k with from[k] == a. i runs
// over `extent`, in the order of dst's axes; from[k] is the axis of src that axis k of dst follows,
// or -1 where src is broadcast.
struct Region {
    Dims dst_start, src_start, extent;
    std::vector<int> from;
};
void copy_region(const Tensor& dst, const Tensor& src, const Region& region);

// --- view ---
Tensor reshape(const Tensor& x,
               const Dims& shape);  // shares tiles where every tile stays one contiguous run
Tensor slice(const Tensor& x, int axis, int64_t start, int64_t length);
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor expand(const Tensor& x, const Dims& shape);

// --- pointwise ---
// An operand of a pointwise kernel: a tensor, or a number.
struct Operand {
    Tensor tensor;
    double number = 0;
    Operand(Tensor t) : tensor(std::move(t)) {}
    Operand(double n) : number(n) {}
};
// y = kernel(operands...) broadcast to their common shape, in `kernel_dtype`, written as `out`.
Tensor pointwise(const char* kernel, Dtype kernel_dtype, Dtype out,
                 const std::vector<Operand>& operands);
// The same into y, which may be an operand too and must have their common shape.
void pointwise_into(const Tensor& y, const char* kernel, Dtype kernel_dtype,
                    const std::vector<Operand>& operands);

// --- reduce ---
enum ReduceKind { reduce_sum, reduce_max, reduce_min, reduce_product };
Tensor reduce(const Tensor& x, const std::vector<int>& axes, ReduceKind kind, bool keepdim,
              double scale = 1);

// --- whole last axis ---
Tensor rows_of(const Tensor& x);                 // with its last axis in one piece
int64_t rows_in(const Tensor& x, int64_t tile);  // product of all extents but the last

// --- contract ---
// C = op(A) op(B) over matrices in the last two axes; leading axes must agree. Accumulates
// over k tiles in order.
struct MatmulOptions {
    bool trans_a = false, trans_b = false;
    Tensor bias = {};        // (n)
    bool gelu = false;       // with bias: C = GELU(product + bias)
    Tensor* pre = nullptr;   // and the sum before it
    Tensor gelu_of = {};     // C = product * GELU'(gelu_of)
    Tensor* sums = nullptr;  // and its column sums over each tile of rows: (tiles of rows, n)
    Tensor into = {};        // accumulate there instead of into a new tensor
    bool wide = false;       // the result (and `into`) has the accumulator dtype
};
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace nn
