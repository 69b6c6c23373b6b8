// The CUDA kernels of every op in kernels/pointwise.inc, from the same functors as the CPU's. A
// kernel exists once per type that is computed in; what the operands are stored as is looked up
// while loading, which memory hides and which keeps the number of kernels to compile small.
#include "kernels/cuda/cuda.cuh"
#include "kernels/pointwise.h"

namespace nn::NN_ISA::pointwise {
namespace {

constexpr unsigned threads = 256;
constexpr int width = 4;  // elements a thread takes where all operands are contiguous

// Calls f with a null pointer to the type behind `dtype`, of those that are computed in T (or a
// bool).
template <class T, class F> __device__ void visit(Dtype dtype, F f) {
    if constexpr (std::is_same_v<T, float>) {
        if (dtype == Dtype::f32) return f((float*)nullptr);
        if (dtype == Dtype::bf16) return f((bf16*)nullptr);
    } else if constexpr (std::is_same_v<T, double>) {
        if (dtype == Dtype::f64) return f((double*)nullptr);
    } else {
        if (dtype == Dtype::i64) return f((int64_t*)nullptr);
        if (dtype == Dtype::i32) return f((int32_t*)nullptr);
    }
    f((uint8_t*)nullptr);
}

template <class T> __device__ T load(const Source& source, int64_t i) {
    T x;
    visit<T>(source.dtype, [&](auto* null) {
        using S = Pointee<decltype(null)>;
        x = T(number(reinterpret_cast<const S*>(source.data)[i]));
    });
    return x;
}
template <class T> __device__ void load(const Source& source, int64_t i, T* x) {
    visit<T>(source.dtype, [&](auto* null) {
        using S = Pointee<decltype(null)>;
        const auto pack =
            *reinterpret_cast<const Pack<S, width>*>(source.data + i * int64_t(sizeof(S)));
#pragma unroll
        for (int e = 0; e < width; ++e) x[e] = T(number(pack.value[e]));
    });
}

template <class Form, class T>
__global__ void __launch_bounds__(threads) strided(const Plan plan, void* y) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= plan.total) return;
    const bool small = plan.total <= 0x7FFFFFFF;  // then dividing takes a quarter of the time
    int64_t offset[4] = {}, rest = i;
    for (int axis = plan.ndim - 1; axis >= 0; --axis) {
        int64_t above = 0;
        if (axis)
            above = small ? uint32_t(rest) / uint32_t(plan.extent[axis]) : rest / plan.extent[axis];
        const int64_t index = rest - above * plan.extent[axis];
#pragma unroll
        for (int k = 0; k < Form::count; ++k) offset[k] += index * plan.source[k].stride[axis];
        rest = above;
    }
    T x[4] = {};
#pragma unroll
    for (int k = 0; k < Form::count; ++k)
        if (Form::needed >> k & 1)
            x[k] =
                plan.source[k].data ? load<T>(plan.source[k], offset[k]) : T(plan.source[k].scalar);
    const auto result = Form::apply(x[0], x[1], x[2], x[3]);
    visit<T>(plan.out, [&](auto* null) {
        using S = Pointee<decltype(null)>;
        static_cast<S*>(y)[i] = stored<S>(result);
    });
}

// All operands are contiguous or scalars, aligned to a pack, and plan.total is a multiple of the
// pack's width.
template <class Form, class T>
__global__ void __launch_bounds__(threads) contiguous(const Plan plan, void* y) {
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
    if (i >= plan.total) return;
    T x[4][width] = {};
#pragma unroll
    for (int k = 0; k < Form::count; ++k) {
        if (!(Form::needed >> k & 1)) continue;
        if (plan.source[k].data)
            load(plan.source[k], i, x[k]);
        else
            for (int e = 0; e < width; ++e) x[k][e] = T(plan.source[k].scalar);
    }
    visit<T>(plan.out, [&](auto* null) {
        using S = Pointee<decltype(null)>;
        Pack<S, width> pack;
#pragma unroll
        for (int e = 0; e < width; ++e)
            pack.value[e] = stored<S>(Form::apply(x[0][e], x[1][e], x[2][e], x[3][e]));
        static_cast<Pack<S, width>*>(y)[i / width] = pack;
    });
}

bool packs(const void* data, Dtype dtype) { return aligned(data, dtype_size(dtype) * width); }

bool is_contiguous(const Plan& plan, const void* y) {
    bool yes = plan.ndim == 1 && plan.total % width == 0 && packs(y, plan.out);
    for (int k = 0; k < plan.count; ++k) {
        const Source& source = plan.source[k];
        yes = yes && (!source.data || (source.stride[0] == 1 && packs(source.data, source.dtype)));
    }
    return yes;
}

template <class Form, class T> void compute(const KernelCall& call, const Plan& plan) {
    void* y = call.operand<void>(0);
    if (plan.total == 0) return;
    if constexpr (std::is_same_v<T, float>)  // other types are rare and not in a hurry
        if (is_contiguous(plan, y))
            return void(launch(call, {blocks_for(plan.total, threads * width), threads},
                               contiguous<Form, T>, plan, y));
    launch(call, {blocks_for(plan.total, threads), threads}, strided<Form, T>, plan, y);
}

template <class Form, bool integers> void kernel(const KernelCall& call) {
    Plan plan;
    if (!make_plan<Form, integers>(call, plan)) return;
    if (call.dtype == Dtype::f64) return compute<Form, double>(call, plan);
    if (is_float(call.dtype)) return compute<Form, float>(call, plan);
    if constexpr (integers) compute<Form, int64_t>(call, plan);
}

#define NN_POINTWISE(name, operands, integers, ...)                                  \
    const NN_CUDA_REGISTRAR registrar_##name(#name, operands, "nn_pointwise_params", \
                                             sizeof(nn_pointwise_params),            \
                                             &kernel<__VA_ARGS__, integers>);
#include "kernels/pointwise_kernels.inc"

}  // namespace
}  // namespace nn::NN_ISA::pointwise
