// Unsigned integers in the order of the elements that they stand for, as PyTorch sorts: NaN is the
// largest and -0 equals 0. For the sorts of every target.
#pragma once
#include <cstring>
#include <type_traits>

#include "kernels/host_device.h"
#include "kernels/types.h"

namespace nn::NN_TARGET {

template <size_t bytes>
using Unsigned = std::conditional_t<
    bytes == 1, uint8_t,
    std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

// The key of NaN in ascending order.
template <class T> constexpr auto largest_key = Unsigned<sizeof(T)>(~uint64_t(0));

template <class T> NN_HD static inline Unsigned<sizeof(T)> ascending_key(T x) {
    using U = Unsigned<sizeof(T)>;
    constexpr U sign = U(U(1) << (8 * sizeof(T) - 1));
    U bits;
    memcpy(&bits, &x, sizeof bits);
    if constexpr (std::is_same_v<T, uint8_t>) {
        return bits;
    } else if constexpr (std::is_integral_v<T>) {
        return bits ^ sign;
    } else {
        constexpr int fraction = sizeof(T) == 8 ? 52 : sizeof(T) == 4 ? 23 : 7;
        constexpr U infinity = U(sign - (U(1) << fraction));
        if (U(bits & ~sign) > infinity) return largest_key<T>;
        if (bits == sign) return sign;
        return bits & sign ? U(~bits) : U(bits | sign);
    }
}

template <class T> NN_HD static inline Unsigned<sizeof(T)> sort_key(T x, bool descending) {
    const auto key = ascending_key(x);
    return descending ? Unsigned<sizeof(T)>(~key) : key;
}

// An element of a row: no two are equal, so every sort is stable.
template <class K> struct SortEntry {
    K key, index;
    NN_HD bool operator<(const SortEntry& other) const {
        return key != other.key ? key < other.key : index < other.index;
    }
};

// Calls f with a null pointer to the type of keys and positions in rows of n elements of T.
template <class T, class F> void visit_entries(int64_t n, F f) {
    if (sizeof(T) <= 4 && n <= 0xFFFFFFFF)
        f((uint32_t*)nullptr);
    else
        f((uint64_t*)nullptr);
}

}  // namespace nn::NN_TARGET
