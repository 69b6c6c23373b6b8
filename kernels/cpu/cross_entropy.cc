// Cross-entropy of logits that come in vocabulary tiles and never exist all at once: ce_count, then
// ce_stats over the tiles of a row, then ce_loss, and ce_grad for one tile at a time. Rows whose
// target is ignore_index do not count.
#include "kernels/params/cross_entropy.h"

#include "kernels/cpu/row.h"
#include "kernels/math/exp.h"

namespace nn::NN_TARGET {
namespace {

Indices targets_of(const KernelCall& call, int operand) {
    return {call, operand, call.get<nn_cross_entropy_params>().targets_dtype};
}

void ce_count(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    const Indices targets = targets_of(call, 1);
    int64_t counted = 0;
    for (int64_t i = 0; i < p.rows; ++i) {
        if (targets[i] == p.ignore_index) continue;
        ++counted;
        if (targets[i] < 0 || targets[i] >= p.vocab)
            call.fail("target %lld is outside the vocabulary of %lld", (long long)targets[i],
                      (long long)p.vocab);
    }
    auto* count = call.operand<double>(0);
    *count = (p.first ? 0 : *count) + double(counted);
}

// Adds columns of a row to stat: the running maximum and the sum of e^(logit - maximum). NaN makes
// the sum NaN; while all logits are -inf, the sum stays 0, and the loss becomes NaN.
template <class T> void combine(Acc<T>* stat, const T* logits, int64_t n) {
    constexpr Acc<T> none = -std::numeric_limits<Acc<T>>::infinity();
    const Acc<T> before = stat[0], here = row_max(logits, n);
    if (here > before) {
        stat[0] = here;
        stat[1] *= exp_negative(before - here);
    }
    stat[1] += row_exp_sum(logits, n, stat[0] == none ? Acc<T>(0) : stat[0]);
}

void ce_stats(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    const Indices targets = targets_of(call, 2);
    visit_float(call.dtype, [&]<class T>(T*) {
        const T* logits = call.input<T>(1);
        Acc<T>* stat = call.operand<Acc<T>>(0);
        for (int64_t i = 0; i < p.rows; ++i, logits += p.ld, stat += 3) {
            if (p.first) stat[0] = -std::numeric_limits<Acc<T>>::infinity(), stat[1] = stat[2] = 0;
            // By blocks, so that the next one is loaded meanwhile.
            for (int64_t j = 0; j < p.cols; j += 1024)
                combine(stat, logits + j, std::min<int64_t>(p.cols - j, 1024));
            const int64_t column = targets[i] - p.col_start;
            if (column >= 0 && column < p.cols) stat[2] = Acc<T>(logits[column]);
        }
    });
}

void ce_loss(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    const Indices targets = targets_of(call, 2);
    visit_float(call.dtype, [&]<class T>(T*) {
        const Acc<T>* stat = call.input<Acc<T>>(1);
        double sum = 0;
        for (int64_t i = 0; i < p.rows; ++i, stat += 3)
            if (targets[i] != p.ignore_index)
                sum += double(stat[0]) + std::log(double(stat[1])) - double(stat[2]);
        auto* loss = call.operand<double>(0);
        *loss = (p.first ? 0 : *loss) + sum;
    });
}

// d = factor (softmax - onehot); column is outside [0, n) if the target is in another tile. d may
// be logits.
template <class T>
void grad_row(T* d, const T* logits, int64_t n, const Acc<T>* stat, int64_t column, Acc<T> factor) {
    const Acc<T> largest = stat[0], weight = factor / stat[1];
    const bool here = column >= 0 && column < n;
    const Acc<T> at_target =
        here ? weight * exp_negative(Acc<T>(logits[column]) - largest) - factor : Acc<T>(0);
    simd_for(n, [=](int64_t j) { d[j] = T(weight * exp_negative(Acc<T>(logits[j]) - largest)); });
    if (here) d[column] = T(at_target);
}

void ce_grad(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    const Indices targets = targets_of(call, 3);
    visit_float(call.dtype, [&]<class T>(T*) {
        T* d = call.operand<T>(0);
        const T* logits = call.input<T>(1);
        const Acc<T>* stat = call.input<Acc<T>>(2);
        const Acc<T> factor = Acc<T>(p.scale / std::max(*call.input<double>(4), nn_least_divisor));
        for (int64_t i = 0; i < p.rows; ++i, d += p.ld, logits += p.ld, stat += 3) {
            if (targets[i] == p.ignore_index)
                row_fill(d, p.cols, T(0));
            else
                grad_row(d, logits, p.cols, stat, targets[i] - p.col_start, factor);
        }
    });
}

NN_IMPLEMENT(ce_count, ce_stats, ce_loss, ce_grad);

}  // namespace
}  // namespace nn::NN_TARGET
