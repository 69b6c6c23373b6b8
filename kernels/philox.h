// Philox4x32-10 (Salmon et al., SC 2011): a counter-based generator. The same (seed, counter,
// index) gives the same bits on every device, tiling and worker count.
#pragma once
#include <cstdint>

#include "kernels/host_device.h"

namespace nn {

struct Philox4 {
    uint32_t word[4];
};

// Static, so that every instruction set compiles its own copy.
NN_HD static inline Philox4 philox(uint64_t seed, uint64_t counter, uint64_t index) {
    uint32_t c0 = uint32_t(index), c1 = uint32_t(index >> 32), c2 = uint32_t(counter),
             c3 = uint32_t(counter >> 32);
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
        const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = uint32_t(p1), c2 = n2, c3 = uint32_t(p0);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// 24 random bits as a float in [0, 1).
NN_HD static inline float unit_float(uint32_t word) {
    return float(int32_t(word >> 8)) * (1.0f / 16777216.0f);
}

}  // namespace nn
