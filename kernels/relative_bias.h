// The buckets of T5's relative position bias (Raffel et al. 2019, arXiv:1910.10683): small
// distances have a bucket each, larger ones share buckets that grow as the logarithm of the
// distance, in the single precision of transformers. Limits are integers, so that all devices
// agree.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace nn::NN_TARGET {

constexpr int max_buckets = 128;

struct RelativeBuckets {
    int32_t exact = 0, count = 0, later = 0;   // later: the bucket of the next key, if keys after
    int32_t limits[max_buckets / 2 + 1] = {};  // distances from which bucket exact + 1, ... begin

    // The bucket of a key `distance` tokens before the query (below 0: after it).
    NN_HD int32_t of(int64_t distance) const {
        int32_t bucket = 0;
        if (distance < 0) bucket = later, distance = later ? -distance : 0;
        if (distance < exact) return bucket + int32_t(distance);
        int32_t more = 0;
        while (more < count && distance >= limits[more]) ++more;
        return bucket + exact + more;
    }
};

// Both directions have half of the buckets each, unless causal.
static inline RelativeBuckets relative_buckets(int64_t buckets, int64_t max_distance, bool causal) {
    RelativeBuckets out;
    const int32_t each = int32_t(causal ? buckets : buckets / 2);
    out.later = causal ? 0 : each;
    out.exact = each / 2;
    const float range = float(std::log(double(max_distance) / out.exact));
    const auto larger = [&](int64_t distance) {
        return int32_t(std::log(float(distance) / float(out.exact)) / range *
                       float(each - out.exact));
    };
    for (int32_t more = 1; out.exact + more < each; ++more) {
        int64_t low = out.exact, high = max_distance;  // larger(low) < more <= larger(high)
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (larger(middle) < more ? low : high) = middle;
        }
        out.limits[out.count++] = int32_t(high);
    }
    return out;
}

}  // namespace nn::NN_TARGET
