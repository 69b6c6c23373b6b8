// Sums of a few scalars: the last step of a reduction over many tensors.
#include "kernels/cpu/cpu.h"

namespace nn::NN_ISA {
namespace {

// y = (first ? 0 : y) + the scalars given; then its square root, if asked for.
void sum_scalars(const KernelCall& call) {
    const auto& p = call.get<nn_sum_scalars_params>();
    double* y = call.operand<double>(0);
    double sum = p.first ? 0 : *y;
    for (int i = 1; i <= p.count; ++i) sum += *call.operand<double>(i);
    *y = p.sqrt ? std::sqrt(sum) : sum;
}
NN_KERNEL(sum_scalars, "y:rw a:r b:r? c:r? d:r? e:r? f:r? g:r? h:r? i:r? j:r? k:r? l:r? m:r? n:r?",
          nn_sum_scalars_params);

}  // namespace
}  // namespace nn::NN_ISA
