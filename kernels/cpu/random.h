// The random numbers of a tile. Element e of the tensor (its row-major index) takes word e % 4 of
// Philox block e / 4, so the numbers do not depend on the tiling. Generating many blocks at a time
// vectorises.
#pragma once
#include "kernels/cpu/cpu.h"
#include "kernels/params/random.h"
#include "kernels/philox.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t batch = 256;  // Philox blocks generated at a time

// words[4 i + k] = word k of block first + i
void make_words(uint32_t* words, const nn_random_params& p, uint64_t first, int64_t blocks) {
    const uint64_t seed = p.seed, counter = p.counter;
#pragma omp simd
    for (int64_t i = 0; i < blocks; ++i) {
        const Philox4 block = philox(seed, counter, first + uint64_t(i));
        words[4 * i] = block.word[0];
        words[4 * i + 1] = block.word[1];
        words[4 * i + 2] = block.word[2];
        words[4 * i + 3] = block.word[3];
    }
}

// Calls f(words, offset, n, lead) for contiguous runs of the tile: element offset + i takes
// words[lead + i]. The last axes are one run as far as the tile spans them.
template <class F> void each_run(const nn_random_params& p, F f) {
    alignas(64) uint32_t words[4 * batch];
    int64_t run = 1, runs = 1, axis = p.ndim;
    for (bool whole = true; axis && whole; whole = p.extent[axis] == p.whole[axis])
        run *= p.extent[--axis];
    for (int64_t d = 0; d < axis; ++d) runs *= p.extent[d];
    for (int64_t r = 0, offset = 0; r < runs; ++r) {
        uint64_t element = 0, stride = 1;
        int64_t index = r;
        for (int64_t d = p.ndim - 1; d >= 0; --d) {
            element += uint64_t(p.start[d]) * stride;
            if (d < axis) {
                element += uint64_t(index % p.extent[d]) * stride;
                index /= p.extent[d];
            }
            stride *= uint64_t(p.whole[d]);
        }
        for (int64_t rest = run, n; rest; rest -= n, offset += n, element += uint64_t(n)) {
            const int64_t lead = int64_t(element % 4);
            n = std::min(rest, 4 * batch - lead);
            make_words(words, p, element / 4, (lead + n + 3) / 4);
            f(words, offset, n, lead);
        }
    }
}

}  // namespace
}  // namespace nn::NN_TARGET
