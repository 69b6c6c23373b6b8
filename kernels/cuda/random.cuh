// The random numbers of a tile, as in kernels/cpu/random.h: element e, the row-major index in the
// whole tensor, takes word e % 4 of Philox block e / 4. A run is contiguous in tile and tensor.
#pragma once
#include "kernels/cuda/cuda.cuh"
#include "kernels/params/random.h"
#include "kernels/philox.h"

namespace nn::NN_TARGET {
namespace {

struct Runs {
    nn_random_params p;
    int64_t length, count;  // elements of a run; runs
    int64_t outer;          // axes before those of a run
};

Runs make_runs(const nn_random_params& p) {
    Runs r{p, 1, 1, p.ndim};
    for (bool whole = true; r.outer && whole; whole = p.extent[r.outer] == p.whole[r.outer])
        r.length *= p.extent[--r.outer];
    for (int64_t d = 0; d < r.outer; ++d) r.count *= p.extent[d];
    return r;
}

// Index in the whole tensor of the first element of a run.
__device__ inline uint64_t first_element(const Runs& r, int64_t run) {
    uint64_t element = 0, stride = 1;
    for (int64_t d = r.p.ndim - 1; d >= 0; --d) {
        element += uint64_t(r.p.start[d]) * stride;
        if (d < r.outer) {
            element += uint64_t(run % r.p.extent[d]) * stride;
            run /= r.p.extent[d];
        }
        stride *= uint64_t(r.p.whole[d]);
    }
    return element;
}

// The random words themselves.
struct RandomWords {
    using Value = uint32_t;
    __device__ void operator()(const Philox4& random, uint32_t (&value)[4]) const {
        for (int e = 0; e < 4; ++e) value[e] = random.word[e];
    }
};

// Make's values of the random words of a thread's elements, from element i of the tile on.
template <class Make> class Draws {
public:
    using Value = typename Make::Value;
    __device__ Draws(const Runs& runs, int64_t i)
        : runs_(runs), run_(i / runs.length), at_(i % runs.length) {
        first_ = first_element(runs_, run_);
    }
    __device__ Value next() {
        const uint64_t element = first_ + uint64_t(at_);
        if (element / 4 != made_) {
            made_ = element / 4;
            make(made_, value_);
        }
        if (++at_ == runs_.length) {
            at_ = 0;
            first_ = first_element(runs_, ++run_);
        }
        const unsigned k = unsigned(element % 4);
        return k == 0 ? value_[0] : k == 1 ? value_[1] : k == 2 ? value_[2] : value_[3];
    }
    // The next n values if they are whole Philox blocks of one run; else false, and none is used.
    template <int n> __device__ bool next_blocks(Value (&value)[n / 4][4]) {
        const uint64_t element = first_ + uint64_t(at_);
        if (element % 4 != 0 || at_ + n > runs_.length) return false;
#pragma unroll
        for (int b = 0; b < n / 4; ++b) make(element / 4 + uint64_t(b), value[b]);
        return true;
    }

private:
    __device__ void make(uint64_t block, Value (&value)[4]) const {
        Make()(philox(runs_.p.seed, runs_.p.counter, block), value);
    }
    const Runs& runs_;
    int64_t run_, at_;
    uint64_t first_, made_ = ~uint64_t(0);
    Value value_[4] = {};
};

}  // namespace
}  // namespace nn::NN_TARGET
