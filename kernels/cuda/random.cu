// Random tiles and dropout. A thread writes 16 bytes of the tile, from whole Philox blocks if these
// begin and end with it.
#include "kernels/cuda/random.cuh"
#include "kernels/math/box_muller.h"

namespace nn::NN_TARGET {
namespace {

enum Kind { uniform, normal, drop };

// The numbers of a Philox block: in [0, 1), or normal numbers computed in A.
template <Kind kind, class A> struct Numbers {
    using Value = std::conditional_t<kind == normal, A, float>;
    __device__ void operator()(const Philox4& random, Value (&value)[4]) const {
        if constexpr (kind == normal) {
            math::box_muller(random.word[0], random.word[1], &value[0], &value[1]);
            math::box_muller(random.word[2], random.word[3], &value[2], &value[3]);
        } else {
            for (int e = 0; e < 4; ++e) value[e] = unit_float(random.word[e]);
        }
    }
};

template <class T> constexpr int width = larger(4, lanes16<T>);  // elements per thread

// a and b: minimum and width, or mean and deviation; for dropout a is the scale of kept elements, p
// the probability of a drop. n: elements of y and x, which are aligned if `packed`.
template <Kind kind, class T>
__global__ void __launch_bounds__(threads) random_kernel(const Runs r, int64_t n, bool packed, T* y,
                                                         const T* x, Acc<T> a, Acc<T> b, float p) {
    using A = Acc<T>;
    constexpr int wide = width<T>;
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * wide;
    if (i >= n) return;
    Draws<Numbers<kind, A>> draws(r, i);
    const auto finish = [&](auto value, A from) {
        return kind == drop ? (value >= p ? from * a : A(0)) : a + b * A(value);
    };
    typename Numbers<kind, A>::Value drawn[wide / 4][4];
    if (packed && draws.template next_blocks<wide>(drawn)) {
        A value[wide] = {};
        if (kind == drop) load_run<wide>(x + i, wide, true, value);
#pragma unroll
        for (int e = 0; e < wide; ++e) value[e] = finish(drawn[e / 4][e % 4], value[e]);
        return store_run<wide>(y + i, wide, true, value);
    }
    const int64_t end = smaller(n, i + wide);
#pragma unroll 1
    for (int64_t at = i; at < end; ++at)
        y[at] = stored<T>(finish(draws.next(), kind == drop ? A(number(x[at])) : A(0)));
}

template <Kind kind> void run_random(const KernelCall& call, double a, double b, float p) {
    const Runs runs = make_runs(call.get<nn_random_params>());
    const int64_t n = runs.count * runs.length;
    if (n == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        T* y = call.operand<T>(0);
        const T* x = kind == drop ? call.input<T>(1) : nullptr;
        launch_each(call, n, width<T>, random_kernel<kind, T>, runs, n, all_aligned(y, x), y, x,
                    Acc<T>(a), Acc<T>(b), p);
    });
}

void random_uniform(const KernelCall& call) {
    const auto& p = call.get<nn_random_params>();
    run_random<uniform>(call, p.a, p.b - p.a, 0);
}
void random_normal(const KernelCall& call) {
    const auto& p = call.get<nn_random_params>();
    run_random<normal>(call, p.a, p.b, 0);
}
void dropout(const KernelCall& call) {
    const auto& p = call.get<nn_random_params>();
    run_random<drop>(call, 1 / (1 - p.a), 0, float(p.a));
}

NN_IMPLEMENT(random_uniform, random_normal, dropout);

}  // namespace
}  // namespace nn::NN_TARGET
