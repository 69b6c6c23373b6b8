// Token and position embedding and their gradients. A tile of the token table holds some rows of
// the vocabulary; a call handles the ids of those rows. Gradients are added in row order.
#include <algorithm>

#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

template <class From, class A> void add_row(const From* x, int64_t n, A* y) {
    using Sum = Acc<From>;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] = A(Sum(y[j]) + Sum(x[j]));
}

// y (batch * len, cols) = position vector + token vector.
template <class T, class Id>
void embed(const KernelCall& call, const nn_embedding_params& p, T* y, const T* tokens,
           const T* positions, const Id* ids) {
    for (int64_t i = 0; i < p.batch * p.len; ++i, y += p.cols) {
        const int64_t position = p.start + i % p.len;
        if (p.first && positions && position < p.context)
            row_convert(positions + position * p.cols, p.cols, y);
        else if (p.first)
            row_fill(y, p.cols, T(0));
        const int64_t id = int64_t(ids[i]), row = id - p.row_start;
        if (id < 0 || id >= p.vocab)
            call.fail("token id %lld is outside the vocabulary of %lld", (long long)id,
                      (long long)p.vocab);
        else if (row >= 0 && row < p.rows)
            add_row(tokens + row * p.cols, p.cols, y);
    }
}

void embedding(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    if (call.operand<void>(2) && p.start + p.len > p.context)
        call.fail("position %lld is outside the context of %lld", (long long)(p.start + p.len - 1),
                  (long long)p.context);
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_index(Dtype(p.ids_dtype), [&]<class Id>(Id*) {
            embed<T, Id>(call, p, call.operand<T>(0), call.input<T>(1), call.input<T>(2),
                         call.input<Id>(3));
        });
    });
}

void embedding_backward(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_index(Dtype(p.ids_dtype), [&]<class Id>(Id*) {
            auto* dtokens = call.operand<Acc<T>>(0);
            const Id* ids = call.input<Id>(1);
            const T* dy = call.input<T>(2);
            if (p.first) row_fill(dtokens, p.rows * p.cols, Acc<T>(0));
            for (int64_t i = 0; i < p.batch * p.len; ++i) {
                const int64_t row = int64_t(ids[i]) - p.row_start;
                if (row >= 0 && row < p.rows)
                    add_row(dy + i * p.cols, p.cols, dtokens + row * p.cols);
            }
        });
    });
}

void positions_backward(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        auto* dpositions = call.operand<Acc<T>>(0);
        const T* dy = call.input<T>(1);
        if (p.first) row_fill(dpositions, p.context * p.cols, Acc<T>(0));
        // The forward pass has reported positions outside the context.
        const int64_t len = std::min(p.len, p.context - p.start);
        for (int64_t b = 0; b < p.batch; ++b)
            for (int64_t i = 0; i < len; ++i)
                add_row(dy + (b * p.len + i) * p.cols, p.cols, dpositions + (p.start + i) * p.cols);
    });
}

NN_IMPLEMENT(embedding, embedding_backward, positions_backward);

}  // namespace
}  // namespace nn::NN_TARGET
