// Token and position embedding and their gradients, whole and over tiles of the vocabulary and of
// the sequence.
#include "kernels/params/embedding.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

constexpr int64_t batch = 3, len = 5, start = 2, vocab = 11, context = 9;

nn_embedding_params params(int64_t cols, Dtype ids) {
    return {batch, len, start, 0, vocab, vocab, context, cols, 1, int32_t(ids)};
}
Values slice(const Values& v, int64_t from, int64_t to) {
    return Values(v.begin() + from, v.begin() + to);
}

}  // namespace

TEST_CASE("embedding is token plus position, for any tiling of the vocabulary") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (int64_t cols : {1, 3, 64, 65})
            for (Dtype ids_dtype : {Dtype::i32, Dtype::i64})
                for (bool has_positions : {true, false})
                    for (int64_t tile_rows : {11, 4}) {
                        const Tile tokens = v.tile(random.values(vocab * cols));
                        Tile positions = v.tile(random.values(context * cols));
                        Tile ids(ids_dtype, random.integers(batch * len, 0, vocab - 1)),
                            y = v.output(batch * len * cols);
                        Values want(batch * len * cols);
                        for (int64_t i = 0; i < batch * len; ++i)
                            for (int64_t j = 0; j < cols; ++j)
                                want[i * cols + j] =
                                    tokens[int64_t(ids[i]) * cols + j] +
                                    (has_positions ? positions[(start + i % len) * cols + j] : 0);
                        nn_embedding_params p = params(cols, ids_dtype);
                        for (int64_t row = 0; row < vocab; row += tile_rows) {
                            p.row_start = row, p.rows = std::min(tile_rows, vocab - row),
                            p.first = row == 0;
                            Tile tile =
                                v.tile(slice(tokens.values(), row * cols, (row + p.rows) * cols));
                            CHECK(run(v, "embedding", p,
                                      {&y, &tile, has_positions ? &positions : nullptr, &ids}) ==
                                  "");
                        }
                        check_close("y", y, want, v.eps());
                    }
    });
}

TEST_CASE("embedding reports an id outside the vocabulary and leaves its row finite") {
    each_variant([&](const Variant& v) {
        for (int64_t wrong : {int64_t(-1), int64_t(vocab)}) {
            nn_embedding_params p = params(2, Dtype::i64);
            p.batch = 1, p.len = 2, p.start = 0;
            Tile tokens = v.tile(Values(vocab * 2, 1)),
                 positions = v.tile(Values(context * 2, 0.5));
            Tile ids(Dtype::i64, {double(wrong), 3}), y = v.output(4);
            CHECK(run(v, "embedding", p, {&y, &tokens, &positions, &ids}) ==
                  "token id " + std::to_string(wrong) + " is outside the vocabulary of 11");
            check_close("y", y, {0.5, 0.5, 1.5, 1.5}, 0);
        }
    });
}

TEST_CASE("embedding reports a position outside the context") {
    each_variant([&](const Variant& v) {
        nn_embedding_params p = params(1, Dtype::i32);
        p.batch = 1, p.len = 2, p.start = context - 1;
        Tile tokens = v.tile(Values(vocab, 1)), positions = v.tile(Values(context, 0.5)),
             ids(Dtype::i32, {0, 1});
        Tile y = v.output(2);
        CHECK(run(v, "embedding", p, {&y, &tokens, &positions, &ids}) ==
              "position 9 is outside the context of 9");
        check_close("y", y, {1.5, 1}, 0);
    });
}

TEST_CASE("embedding_backward adds the rows of ids that occur often and far apart") {
    Random random(3);
    const int64_t tokens = 9000, cols = 8;
    each_variant([&](const Variant& v) {
        Tile ids(Dtype::i32, random.integers(tokens, 0, vocab - 1));
        for (int64_t i = 0; i < tokens; ++i)
            if (ids[i] == 5) ids.set(i, 6);
        ids.set(0, 5), ids.set(tokens - 1, 5);
        const Tile ones = v.tile(Values(tokens * cols, 1));
        Tile dy = ones, sums = v.sums(Values(vocab * cols));
        nn_embedding_params p = params(cols, Dtype::i32);
        p.batch = 1, p.len = tokens, p.start = 0, p.first = 1;
        CHECK(run(v, "embedding_backward", p, {&sums, &ids, &dy}) == "");
        Values want(vocab * cols);
        for (int64_t i = 0; i < tokens; ++i)
            for (int64_t j = 0; j < cols; ++j) want[int64_t(ids[i]) * cols + j] += 1;
        check_close("dtokens", sums, want, v.sum_eps());
    });
}

TEST_CASE("embedding_backward adds the rows of each id, for any tiling of the vocabulary") {
    Random random(2);
    each_variant([&](const Variant& v) {
        for (int64_t cols : {1, 17, 64})
            for (int64_t tile_rows : {11, 4}) {
                Values want(vocab * cols);
                Tile ids(Dtype::i32,
                         random.integers(batch * len, -1, vocab));  // ignores ids outside
                Tile dy = v.tile(random.values(batch * len * cols));
                for (int64_t i = 0; i < batch * len; ++i)
                    for (int64_t j = 0; j < cols; ++j)
                        if (ids[i] >= 0 && ids[i] < vocab)
                            want[int64_t(ids[i]) * cols + j] += 2 * dy[i * cols + j];
                nn_embedding_params p = params(cols, Dtype::i32);
                for (int64_t row = 0; row < vocab; row += tile_rows) {
                    p.row_start = row, p.rows = std::min(tile_rows, vocab - row);
                    Tile dtokens = v.sum_output(p.rows * cols);
                    for (int first : {1, 0}) {
                        p.first = first;
                        run(v, "embedding_backward", p, {&dtokens, &ids, &dy});
                    }
                    check_close("dtokens", dtokens, slice(want, row * cols, (row + p.rows) * cols),
                                20 * v.sum_eps());
                }
            }
    });
}

TEST_CASE("positions_backward sums over the batch and zeros other positions") {
    Random random(3);
    each_variant([&](const Variant& v) {
        for (int64_t cols : {1, 17, 64}) {
            Tile dpositions = v.sum_output(context * cols);
            Values want(context * cols);
            for (int first : {1, 0}) {
                nn_embedding_params p = params(cols, Dtype::i32);
                p.first = first, p.start = first ? start : 0;
                Tile dy = v.tile(random.values(batch * len * cols));
                for (int64_t i = 0; i < batch * len; ++i)
                    for (int64_t j = 0; j < cols; ++j)
                        want[(p.start + i % len) * cols + j] += dy[i * cols + j];
                run(v, "positions_backward", p, {&dpositions, &dy});
            }
            check_close("dpositions", dpositions, want, 20 * v.sum_eps());
        }
    });
}
