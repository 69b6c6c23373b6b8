// Token and position embedding and their gradients. A tile of the token table holds some rows of
// the vocabulary; a call handles the ids of those rows. Gradients are added in row order:
// deterministic.
#include "kernels/params/embedding.h"

#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

template <class From, class A> void add_row(const From* x, int64_t n, A* y) {
    using Sum = Acc<From>;
    simd_for(n, [=](int64_t j) { y[j] = A(Sum(y[j]) + Sum(x[j])); });
}

// y (batch * len, cols) = position vector + token vector.
void embedding(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    const Indices ids(call, 3, p.ids_dtype);
    if (call.operand<void>(2) && p.start + p.len > p.context)
        call.fail("position %lld is outside the context of %lld", (long long)(p.start + p.len - 1),
                  (long long)p.context);
    visit_float(call.dtype, [&]<class T>(T*) {
        T* y = call.operand<T>(0);
        const T *tokens = call.input<T>(1), *positions = call.input<T>(2);
        for (int64_t i = 0; i < p.batch * p.len; ++i, y += p.cols) {
            const int64_t position = p.start + i % p.len, row = ids[i] - p.row_start;
            if (p.first && positions && position < p.context)
                row_convert(positions + position * p.cols, p.cols, y);
            else if (p.first)
                row_fill(y, p.cols, T(0));
            if (ids[i] < 0 || ids[i] >= p.vocab)
                call.fail("token id %lld is outside the vocabulary of %lld", (long long)ids[i],
                          (long long)p.vocab);
            else if (row >= 0 && row < p.rows)
                add_row(tokens + row * p.cols, p.cols, y);
        }
    });
}

void embedding_backward(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    const Indices ids(call, 1, p.ids_dtype);
    visit_float(call.dtype, [&]<class T>(T*) {
        auto* dtokens = call.operand<Acc<T>>(0);
        const T* dy = call.input<T>(2);
        if (p.first) row_fill(dtokens, p.rows * p.cols, Acc<T>(0));
        for (int64_t i = 0; i < p.batch * p.len; ++i) {
            const int64_t row = ids[i] - p.row_start;
            if (row >= 0 && row < p.rows) add_row(dy + i * p.cols, p.cols, dtokens + row * p.cols);
        }
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
