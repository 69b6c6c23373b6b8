// Random tiles and dropout: the numbers of kernels/cpu/random.h. A thread makes one Philox block
// and the elements of one run that lie in it.
#include "kernels/cuda/random.cuh"

namespace nn::NN_ISA {
namespace {

constexpr unsigned threads = 256;

enum Kind { uniform, normal, drop };

// a, b: lowest value and width; mean and deviation; or the scale of what is kept. `p` is the
// probability of a drop.
template <Kind kind, class T>
__global__ void random_kernel(const Runs r, T* y, const T* x, Acc<T> a, Acc<T> b, float p) {
    using A = Acc<T>;
    const int64_t thread = int64_t(blockIdx.x) * threads + threadIdx.x;
    const int64_t run = thread / r.groups, group = thread % r.groups;
    if (run >= r.count) return;
    const uint64_t first = first_element(r, run);
    const int64_t lead = int64_t(first % 4),
                  from = 4 * group - lead;  // the block's first in the run
    if (from >= r.length) return;
    const Philox4 random = philox(r.seed, r.counter, first / 4 + uint64_t(group));
    A value[4];
    if (kind == normal) {
        math::box_muller(random.word[0], random.word[1], &value[0], &value[1]);
        math::box_muller(random.word[2], random.word[3], &value[2], &value[3]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int64_t at = run * r.length + from + e;
        if (from + e < 0 || from + e >= r.length) continue;
        const float unit = unit_float(random.word[e]);
        if (kind == uniform)
            y[at] = stored<T>(a + b * A(unit));
        else if (kind == normal)
            y[at] = stored<T>(a + b * value[e]);
        else
            y[at] = stored<T>(unit >= p ? A(number(x[at])) * a : A(0));
    }
}

template <Kind kind> void run_random(const KernelCall& call, double a, double b, float p) {
    const Runs runs = make_runs(call.get<nn_random_params>());
    if (runs.count * runs.length == 0) return;
    visit_float(call.dtype, [&](auto* null) {
        using T = Pointee<decltype(null)>;
        launch(call, {blocks_for(runs.count * runs.groups, threads), threads},
               random_kernel<kind, T>, runs, call.operand<T>(0),
               kind == drop ? call.operand<const T>(1) : nullptr, Acc<T>(a), Acc<T>(b), p);
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

NN_CUDA_KERNEL(random_uniform, "y:w", nn_random_params);
NN_CUDA_KERNEL(random_normal, "y:w", nn_random_params);
NN_CUDA_KERNEL(dropout, "y:w x:r", nn_random_params);

}  // namespace
}  // namespace nn::NN_ISA
