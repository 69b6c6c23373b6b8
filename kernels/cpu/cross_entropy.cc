// Cross-entropy of logits that come in vocabulary tiles and never exist all at once: ce_count, then
// ce_stats over the tiles of a row, then ce_loss, and ce_grad for one tile at a time. Rows whose
// target is ignore_index do not count.
#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

template <class F> void visit_targets(const KernelCall& call, int operand, F f) {
    visit_index(Dtype(call.get<nn_cross_entropy_params>().targets_dtype),
                [&]<class I>(I*) { f(call.input<I>(operand)); });
}

void ce_count(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    auto* count = call.operand<double>(0);
    if (p.first) *count = 0;
    visit_targets(call, 1, [&](const auto* targets) {
        int64_t counted = 0;
        for (int64_t i = 0; i < p.rows; ++i) {
            const int64_t target = int64_t(targets[i]);
            counted += target != p.ignore_index;
            if (target != p.ignore_index && (target < 0 || target >= p.vocab))
                call.fail("target %lld is outside the vocabulary of %lld", (long long)target,
                          (long long)p.vocab);
        }
        *count += double(counted);
    });
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
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_targets(call, 2, [&](const auto* targets) {
            const T* logits = call.input<T>(1);
            Acc<T>* stat = call.operand<Acc<T>>(0);
            for (int64_t i = 0; i < p.rows; ++i, logits += p.cols, stat += 3) {
                if (p.first)
                    stat[0] = -std::numeric_limits<Acc<T>>::infinity(), stat[1] = stat[2] = 0;
                // By blocks, so that the next one is loaded meanwhile.
                for (int64_t j = 0; j < p.cols; j += 1024)
                    combine(stat, logits + j, p.cols - j < 1024 ? p.cols - j : 1024);
                const int64_t column = int64_t(targets[i]) - p.col_start;
                if (column >= 0 && column < p.cols) stat[2] = Acc<T>(logits[column]);
            }
        });
    });
}

void ce_loss(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    auto* loss = call.operand<double>(0);
    if (p.first) *loss = 0;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_targets(call, 2, [&](const auto* targets) {
            const Acc<T>* stat = call.input<Acc<T>>(1);
            double sum = 0;
            for (int64_t i = 0; i < p.rows; ++i, stat += 3)
                if (int64_t(targets[i]) != p.ignore_index)
                    sum += double(stat[0]) + std::log(double(stat[1])) - double(stat[2]);
            *loss += sum;
        });
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
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) d[j] = T(weight * exp_negative(Acc<T>(logits[j]) - largest));
    if (here) d[column] = T(at_target);
}

void ce_grad(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    const double count = *call.input<double>(4);
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_targets(call, 3, [&](const auto* targets) {
            T* d = call.operand<T>(0);
            const T* logits = call.input<T>(1);
            const Acc<T>* stat = call.input<Acc<T>>(2);
            const Acc<T> factor = Acc<T>(p.scale / (count > 1 ? count : 1.0));
            for (int64_t i = 0; i < p.rows; ++i, d += p.cols, logits += p.cols, stat += 3) {
                if (int64_t(targets[i]) == p.ignore_index)
                    row_fill(d, p.cols, T(0));
                else
                    grad_row(d, logits, p.cols, stat, int64_t(targets[i]) - p.col_start, factor);
            }
        });
    });
}

NN_IMPLEMENT(ce_count, ce_stats, ce_loss, ce_grad);

}  // namespace
}  // namespace nn::NN_TARGET
