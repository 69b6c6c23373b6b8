// Random tiles and dropout.
#include "kernels/cpu/random.h"

#include "kernels/math/box_muller.h"

namespace nn::NN_TARGET {
namespace {

void random_uniform(const KernelCall& call) {
    const auto& p = call.get<nn_random_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const A low = A(p.a), width = A(p.b - p.a);
        each_run(p, [&](const uint32_t* words, int64_t offset, int64_t n, int64_t lead) {
            T* y = call.operand<T>(0) + offset;
            simd_for(n, [=](int64_t i) { y[i] = T(low + width * A(unit_float(words[lead + i]))); });
        });
    });
}

void random_normal(const KernelCall& call) {
    const auto& p = call.get<nn_random_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        const Acc<T> mean = Acc<T>(p.a), deviation = Acc<T>(p.b);
        each_run(p, [&](const uint32_t* words, int64_t offset, int64_t n, int64_t lead) {
            alignas(64) Acc<T> z[4 * batch];
#pragma omp simd
            for (int64_t i = 0; i < (lead + n + 1) / 2; ++i)
                math::box_muller(words[2 * i], words[2 * i + 1], z + 2 * i, z + 2 * i + 1);
            T* y = call.operand<T>(0) + offset;
            simd_for(n, [&](int64_t i) { y[i] = T(mean + deviation * z[lead + i]); });
        });
    });
}

void dropout(const KernelCall& call) {
    const auto& p = call.get<nn_random_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        const float drop = float(p.a);
        const Acc<T> scale = Acc<T>(1 / (1 - p.a));
        each_run(p, [&](const uint32_t* words, int64_t offset, int64_t n, int64_t lead) {
            T* y = call.operand<T>(0) + offset;
            const T* x = call.input<T>(1) + offset;
            simd_for(n, [=](int64_t i) {
                const Acc<T> kept = Acc<T>(x[i]) * scale;  // unconditional, to vectorise
                y[i] = T(unit_float(words[lead + i]) >= drop ? kept : Acc<T>(0));
            });
        });
    });
}

NN_IMPLEMENT(random_uniform, random_normal, dropout);

}  // namespace
}  // namespace nn::NN_TARGET
