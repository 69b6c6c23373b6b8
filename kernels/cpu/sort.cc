// The elements of given ranks along an axis, in order, for sort, topk, kthvalue and median; and
// searchsorted. Long rows are sorted by the digits of their keys, short ones by comparisons.
#include "kernels/params/sort.h"

#include "kernels/cpu/row.h"
#include "kernels/sort_key.h"

namespace nn::NN_TARGET {
namespace {

constexpr int digit_bits = 11;
constexpr int64_t digits = 1 << digit_bits;
constexpr int64_t short_row = 512;  // std::sort is faster up to here

// Sorts n entries whose keys have `bits` bits, the lowest digit first, and returns where the result
// is: in `from` or `to`.
template <class K>
SortEntry<K>* sort_digits(SortEntry<K>* from, SortEntry<K>* to, int64_t n, int bits) {
    int64_t next[digits];
    for (int shift = 0; shift < bits; shift += digit_bits) {
        const auto digit = [=](const SortEntry<K>& e) { return (e.key >> shift) & (digits - 1); };
        std::memset(next, 0, sizeof next);
        for (int64_t i = 0; i < n; ++i) ++next[digit(from[i])];
        if (next[digit(from[0])] == n) continue;
        for (int64_t d = 0, before = 0; d < digits; ++d) {
            const int64_t count = next[d];
            next[d] = before;
            before += count;
        }
        for (int64_t i = 0; i < n; ++i) to[next[digit(from[i])]++] = from[i];
        std::swap(from, to);
    }
    return from;
}

// Orders the entries of ranks [first, first + count) among n; `spare` has room for n entries.
template <class K>
const SortEntry<K>* order(SortEntry<K>* entries, SortEntry<K>* spare, int64_t n, int64_t first,
                          int64_t count, int bits) {
    SortEntry<K>*begin = entries + first, *end = begin + count, *last = entries + n;
    if (count >= n / 8 && n > short_row) return sort_digits(entries, spare, n, bits) + first;
    if (begin != entries) std::nth_element(entries, begin, last);
    if (end != last) std::nth_element(begin, end, last);
    std::sort(begin, end);
    return begin;
}

template <class T, class K> void sort_rows(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_sort_params>();
    SortEntry<K>* entries = scratch.get<SortEntry<K>>(2 * p.n);
    for (int64_t row = 0; row < p.outer * p.inner; ++row) {
        const int64_t o = row / p.inner, i = row % p.inner;
        const T* x = call.input<T>(2) + o * p.n * p.inner + i;
        const int64_t to = o * p.count * p.inner + i;
        int64_t nans = 0;
        for (int64_t j = 0; j < p.n; ++j) {
            const auto key = sort_key(x[j * p.inner], p.descending);
            nans += !std::is_integral_v<T> && key == largest_key<T>;
            entries[j] = {K(key), K(j)};
        }
        const int64_t first = p.nan_wins && nans ? p.n - nans : p.first;
        const SortEntry<K>* found =
            order(entries, entries + p.n, p.n, first, p.count, int(8 * sizeof(T)));
        for (int64_t j = 0; j < p.count; ++j) {
            const int64_t index = int64_t(found[j].index);
            call.operand<T>(0)[to + j * p.inner] = x[index * p.inner];
            call.operand<int64_t>(1)[to + j * p.inner] = index;
        }
    }
}

void sort(const KernelCall& call) {
    const int64_t n = call.get<nn_sort_params>().n;
    visit_any(call.dtype, [&]<class T>(T*) {
        visit_entries<T>(n, [&]<class K>(K*) { sort_rows<T, K>(call); });
    });
}

void searchsorted(const KernelCall& call) {
    const auto& p = call.get<nn_searchsorted_params>();
    visit_any(call.dtype, [&]<class T>(T*) {
        for (int64_t i = 0; i < p.rows * p.m; ++i) {
            const T *sorted = call.input<T>(1) + i / p.m * p.n, *end = sorted + p.n;
            const auto value = ascending_key(call.input<T>(2)[i]);
            const auto before = [=](T x) {
                return p.right ? ascending_key(x) <= value : ascending_key(x) < value;
            };
            call.operand<int64_t>(0)[i] = std::partition_point(sorted, end, before) - sorted;
        }
    });
}

NN_IMPLEMENT(sort, searchsorted);

}  // namespace
}  // namespace nn::NN_TARGET
