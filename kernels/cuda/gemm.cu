// Matrix products by cuBLASLt. Bias and GELU are in its epilogue where that pays, and in our
// kernels otherwise. The gradients of GELU and of gated linear units are in our kernels.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/matmul.h"
#include "kernels/math/activations.h"
#include "kernels/params/gemm.h"

namespace nn::NN_TARGET {
namespace {

Operands operands_of(const KernelCall& call) {
    const int epilogue = call.get<nn_gemm_params>().epilogue;
    return {call.operand<void>(0), call.input<void>(1), call.input<void>(2),
            epilogue ? call.input<void>(3) : nullptr,
            epilogue >= 2 ? call.operand<void>(4) : nullptr};
}

// Whether cuBLASLt's epilogue is used, if it has one: its layouts must allow it, and its GELU is as
// exact as ours only after rounding to bf16 (in f32 it errs by 5e-6). Its slopes (DGELU_BGRAD) have
// a quarter of the product's rate on Hopper, a product and our kernel about half.
bool can_fuse(const KernelCall& call, const Operands& o) {
    const auto& p = call.get<nn_gemm_params>();
    const bool has = (p.epilogue == 1 && o.bias && call.dtype != Dtype::f64) ||
                     (p.epilogue == 2 && call.dtype == Dtype::bf16);
    return has && all_aligned(o.c, o.bias, o.aux) && p.ldc % 8 == 0 && p.stride_c % 8 == 0;
}

// c = epilogue(beta c): the product is already in c (beta 1), or there is none. With beta 0 c is
// not read: it may hold NaN.
template <class T>
__global__ void __launch_bounds__(threads)
    epilogue_kernel(T* c, const T* bias, T* aux, nn_gemm_params p, Acc<T> beta) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= p.batch * p.m * p.n) return;
    const int64_t j = i % p.n, row = i / p.n % p.m;
    const int64_t at = i / (p.m * p.n) * p.stride_c + row * p.ldc + j;
    Acc<T> value = beta == Acc<T>(0) ? Acc<T>(0) : beta * number(c[at]);
    if (bias) value += number(bias[j]);
    if (aux) aux[at] = stored<T>(value);
    c[at] = stored<T>(p.epilogue == 2 ? math::gelu(value) : value);
}

void run_epilogue(const KernelCall& call, const Operands& o, double beta) {
    const auto& p = call.get<nn_gemm_params>();
    visit_float(p.wide ? accumulator(call.dtype) : call.dtype, [&]<class T>(T*) {
        launch_each(call, p.batch * p.m * p.n, 1, epilogue_kernel<T>, o.c, o.bias, o.aux, p, beta);
    });
}

void gemm(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    const Operands o = operands_of(call);
    if (p.batch * p.m * p.n == 0) return;
    if (p.k == 0) return run_epilogue(call, o, p.beta);
    if (run_product(call, o, can_fuse(call, o)) == Done::product) run_epilogue(call, o, 1);
}

// Runs the product before an epilogue with slopes, which needs it also if it is empty. False if the
// call has failed.
bool run_before_slopes(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    const Operands o{call.operand<void>(0), call.input<void>(1), call.input<void>(2), nullptr,
                     nullptr};
    if (p.m > 0 && p.k > 0) return run_product(call, o, false) != Done::nothing;
    if (p.m > 0) run_epilogue(call, o, p.beta);
    return true;
}

void gemm_dgelu(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    void* const c = call.operand<void>(0);
    if (p.n > 0 && run_before_slopes(call))
        gelu_backward(call,
                      {c, call.operand<void>(3), c, call.input<void>(4), p.m, p.n, p.ldc, true});
}

void gemm_dglu(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    void* const dx = call.operand<void>(0);
    if (p.n > 0 && run_before_slopes(call))
        run_glu_backward(call, {dx, call.operand<void>(3), dx, call.input<void>(4), p.m, p.n, p.ldc,
                                p.ldc, p.epilogue - 4, true});
}

NN_IMPLEMENT(gemm, gemm_dgelu, gemm_dglu);

}  // namespace
}  // namespace nn::NN_TARGET
