// The rules that move elements: retiling, views and region copies, for random shapes and cuts,
// against plain row-major arithmetic. Elements are numbered and only moved, so every comparison is
// exact.
#include "engine/rules/tiling.h"

#include <numeric>
#include <set>

#include "engine/machine/description.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

std::string describe(const Tensor& x) { return to_string(x.grid()); }

// A random shape of `count` elements: its factors in random order, and some ones.
Dims random_factors(Random& random, int64_t count, size_t most) {
    Dims out;
    while (count > 1 && out.size() + 1 < most) {
        Dims divisors;
        for (int64_t d = 2; d <= count; ++d)
            if (count % d == 0) divisors.push_back(d);
        out.push_back(divisors[size_t(random.integer(0, int64_t(divisors.size()) - 1))]);
        count /= out.back();
    }
    if (count > 1) out.push_back(count);
    while (out.size() < most && random.integer(0, 2) == 0)
        out.insert(out.begin() + random.integer(0, int64_t(out.size())), 1);
    for (size_t i = out.size(); i-- > 1;)
        std::swap(out[i], out[size_t(random.integer(0, int64_t(i)))]);
    return out;
}

// The elements of every tile of a grid, in the order of the tile's memory.
std::vector<Integers> elements_by_tile(const Grid& grid) {
    const Dims shape = grid.shape();
    std::vector<Integers> out;
    for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
        const Block block = grid.block(tile);
        out.emplace_back();
        each_index(block.extent, [&](Dims index) {
            for (size_t axis = 0; axis < index.size(); ++axis) index[axis] += block.start[axis];
            out.back().push_back(int64_t(offset_of(shape, index)));
        });
    }
    return out;
}

// Whether any grid gives `shape` the same tiles. Tries every grid.
bool can_share(const Grid& old, const Dims& shape) {
    const std::vector<Integers> wanted = elements_by_tile(old);
    int64_t positions = 0;
    for (int64_t size : shape) positions += size - 1;
    for (int64_t choice = 0; choice < int64_t(1) << positions; ++choice) {
        Grid grid;
        int64_t bit = 0;
        for (int64_t size : shape) {
            Cuts cuts{0};
            for (int64_t at = 1; at < size; ++at)
                if (choice >> bit++ & 1) cuts.push_back(at);
            cuts.push_back(size);
            grid.axes.push_back(cuts);
        }
        if (grid.tiles() == old.tiles() && elements_by_tile(grid) == wanted) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("automatic tiles of tokens are one per worker") {
    const auto tokens = [](int64_t all, const char* description) {
        describe_machine(description);
        const int64_t out = tokens_per_tile(all);
        describe_machine("");
        return out;
    };
    CHECK(tokens(1024, "cpus=2") == 512);
    CHECK(tokens(100, "cpus=4") == 128);
    CHECK(tokens(1 << 20, "cpus=4") == 2048);
    CHECK(tokens(16 * 1024, "cpus=8 gpus=4") == 4096);
}

TEST_CASE("GPUs get whole sequences of up to 16384 tokens if there is one for each") {
    using Tiles = std::pair<int64_t, int64_t>;
    const auto tiles = [](const Dims& ids, const char* description) {
        describe_machine(description);
        const Grid grid = choose_grid(ids, Dtype::i32, {"batch", "time"});
        describe_machine("");
        return Tiles(grid.tiles(0), grid.tiles(1));
    };
    CHECK(tiles({1, 16384}, "cpus=8 gpus=1") == Tiles(1, 1));
    CHECK(tiles({1, 32768}, "cpus=8 gpus=1") == Tiles(1, 2));
    CHECK(tiles({16, 1024}, "cpus=8 gpus=1") == Tiles(1, 1));
    CHECK(tiles({32, 1024}, "cpus=8 gpus=1") == Tiles(2, 1));
    CHECK(tiles({4, 1024}, "cpus=8 gpus=4") == Tiles(4, 1));
    CHECK(tiles({1, 8192}, "cpus=8 gpus=4") == Tiles(1, 4));
    CHECK(tiles({1, 1024}, "cpus=2") == Tiles(1, 2));
}

TEST_CASE("vocabularies are cut into the fewest tiles, at multiples of 128") {
    const auto check = [](const char* description, int64_t most, bool rests) {
        describe_machine(description);
        for (int64_t size : {50257, 50304, 32000, 128256, 151936, 8193, 16385, 1000003}) {
            INFO(size << " for " << description);
            const Cuts cuts = choose_grid({size, 64}, Dtype::bf16, {"vocab", ""}).axes[0];
            const int64_t rest = rests && size % 8 ? size % 128 : 0, whole = size - rest;
            Cuts want = cut_every(whole, cuts[1]);
            if (rest) want.push_back(size);
            CHECK((cuts == want && cuts[1] % 128 == 0 && cuts[1] <= most));
            CHECK(int64_t(cuts.size()) == 1 + (whole + most - 1) / most + (rest > 0));
        }
        CHECK(choose_grid({most, 64}, Dtype::bf16, {"vocab", ""}) == Grid::whole({most, 64}));
        describe_machine("");
    };
    check("cpus=8", 2048, false), check("cpus=8 gpus=1", 8192, true);
}

// cuBLASLt gets the leading dimensions of these parameters (kernels/cuda/gemm.cu), and tiles begin
// at multiples of 64 bytes.
TEST_CASE("the rows of all operands of the head's products begin at multiples of 16 bytes") {
    const Session session;
    for (Dtype dtype : {Dtype::bf16, Dtype::f32})
        for (int64_t vocab : {50257, 65}) {
            const Tensor hidden(grid_of({96, 16}, {40, 16}), dtype);
            const Tensor head(choose_grid({vocab, 16}, dtype, {"vocab", ""}), dtype);
            const Tensor ids(Grid::whole({96}), Dtype::i32);
            const auto program = compile({hidden, head, ids}, [](const auto& in) {
                auto out = apply(*find_op("linear_cross_entropy"), {in[0], in[1], in[2]}, {});
                std::erase_if(out, [](const Tensor& result) { return !result; });
                return out;
            });
            int products = 0;
            for (const Task& task : program->program().tasks) {
                if (task.arg.kernel->name != "gemm") continue;
                nn_gemm_params p;
                std::memcpy(&p, task.arg.params, sizeof p);
                const int64_t size = int64_t(dtype_size(dtype));
                INFO(p.m << " x " << p.n << " x " << p.k);
                CHECK(p.lda * size % 16 == 0);
                CHECK(p.ldb * size % 16 == 0);
                CHECK(p.ldc * int64_t(dtype_size(p.wide ? Dtype::f32 : dtype)) % 16 == 0);
                ++products;
            }
            CHECK(products == 3 * 3 * head.tiles());
        }
}

TEST_CASE("a tensor that is written and read back is the same for any cuts") {
    const Session session;
    Random random(10);
    for (int round = 0; round < 200; ++round) {
        const Dims shape = random_shape(random, size_t(round % 6));
        const Tensor x = numbered_tensor(random_grid(random, shape));
        INFO(describe(x));
        REQUIRE(values_of(x) == numbered(product(shape)));
    }
}

TEST_CASE("retile keeps every element, and returns the tensor itself if nothing changes") {
    const Session session;
    Random random(11);
    for (int round = 0; round < 200; ++round) {
        const Dims shape = random_shape(random, size_t(round % 6));
        const Tensor x = numbered_tensor(random_grid(random, shape));
        const Grid grid = random_grid(random, shape);
        INFO(describe(x) << " to " << to_string(grid));
        const Tensor y = retile(x, grid);
        REQUIRE(y.grid() == grid);
        REQUIRE(values_of(y) == numbered(product(shape)));
        REQUIRE((y.identity() == x.identity()) == (x.grid() == grid));
        REQUIRE(retile(x, x.grid()).identity() == x.identity());
        REQUIRE(whole_tensor(x).grid() == Grid::whole(shape));
        REQUIRE(values_of(whole_tensor(x)) == numbered(product(shape)));
    }
}

TEST_CASE("making axes whole keeps the cuts of the others") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({6, 6, 6}, {4, 4, 4}));
    CHECK(whole_axis(x, 1).grid() == grid_of({6, 6, 6}, {4, 6, 4}));
    CHECK(recut(x, 2, {0, 1, 6}).grid() == Grid({{0, 4, 6}, {0, 4, 6}, {0, 1, 6}}));
    CHECK(values_of(recut(whole_axis(x, 0), 2, {0, 1, 6})) == numbered(216));
}

TEST_CASE("reshape keeps the row-major order of elements for random shapes and cuts") {
    const Session session;
    Random random(12);
    int shared = 0, copied = 0;
    for (int round = 0; round < 500; ++round) {
        const Dims shape =
            random_factors(random, random.integer(1, 60), size_t(random.integer(0, 5)));
        const Tensor x = numbered_tensor(random_grid(random, shape));
        const Dims to = random_factors(random, x.count(), 5);
        if (product(to) != x.count()) continue;
        INFO(describe(x) << " to " << nn::to_string(to));
        const Tensor y = reshape(x, to);
        REQUIRE(y.shape() == to);
        REQUIRE(values_of(y) == numbered(x.count()));
        (tiles_of(y) == tiles_of(x) ? shared : copied) += 1;
    }
    CHECK(shared > 100);
    CHECK(copied > 50);
}

// The oracle tries every grid of the new shape for the same tiles.
TEST_CASE("reshape shares tiles exactly where some grid allows it", "[sweep]") {
    const Session session;
    Random random(13);
    int possible = 0, impossible = 0;
    for (int round = 0; round < 400; ++round) {
        const Dims shape = random_factors(random, random.integer(1, 16), 4);
        const Grid grid = random_grid(random, shape);
        const Tensor x(grid, Dtype::i64);
        write_tensor(x, numbered(x.count()).data());
        const Dims to = random_factors(random, x.count(), 4);
        INFO(describe(x) << " to " << nn::to_string(to));
        const Tensor y = reshape(x, to);
        const bool want = can_share(grid, to);
        (want ? possible : impossible) += 1;
        REQUIRE((tiles_of(y) == tiles_of(x)) == want);
        if (to != shape) REQUIRE(y.is_view());
    }
    CHECK(possible > 100);
    CHECK(impossible > 20);
}

TEST_CASE("reshape there and back gives the same tiles where both ways share") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({4, 6}, {1, 3}));
    const Tensor y = reshape(x, {24});
    CHECK(y.grid() == grid_of({24}, {3}));
    CHECK(tiles_of(y) == tiles_of(x));
    CHECK(tiles_of(reshape(y, {4, 6})) == tiles_of(x));
    CHECK(reshape(y, {4, 6}).grid() == x.grid());
    CHECK(tiles_of(reshape(x, {1, 4, 1, 6, 1})) == tiles_of(x));
    CHECK(tiles_of(reshape(numbered_tensor(Grid::whole({1, 1})), {})).size() == 1);
}

TEST_CASE("slice takes the requested elements, and shares tiles where it begins and ends on cuts") {
    const Session session;
    Random random(14);
    int shared = 0;
    for (int round = 0; round < 300; ++round) {
        const Dims shape = random_shape(random, size_t(random.integer(1, 5)));
        const Tensor x = numbered_tensor(random_grid(random, shape));
        const int axis = int(random.integer(0, int64_t(shape.size()) - 1));
        const int64_t start = random.integer(0, x.dim(axis) - 1);
        const int64_t length = random.integer(1, x.dim(axis) - start);
        INFO(describe(x) << ", axis " << axis << " from " << start << ", " << length
                         << " elements");
        const Tensor y = slice(x, axis, start, length);
        Integers want;
        each_index(y.shape(), [&](Dims index) {
            index[size_t(axis)] += start;
            want.push_back(int64_t(offset_of(shape, index)));
        });
        REQUIRE(y.dim(axis) == length);
        REQUIRE(values_of(y) == want);
        const Cuts& cuts = x.grid().axes[size_t(axis)];
        const bool on_cuts = std::count(cuts.begin(), cuts.end(), start) &&
                             std::count(cuts.begin(), cuts.end(), start + length);
        const auto mine = tiles_of(x), theirs = tiles_of(y);
        const std::set<const nn::Tile*> all(mine.begin(), mine.end());
        REQUIRE(std::all_of(theirs.begin(), theirs.end(), [&](const nn::Tile* tile) {
            return bool(all.count(tile)) == on_cuts;
        }));
        shared += on_cuts;
    }
    CHECK(shared > 50);
    CHECK(shared < 250);
}

TEST_CASE("permute moves element (i,j,k) to the permuted index for random orders") {
    const Session session;
    Random random(15);
    for (int round = 0; round < 200; ++round) {
        const Dims shape = random_shape(random, size_t(round % 6));
        const Tensor x = numbered_tensor(random_grid(random, shape));
        std::vector<int> order(shape.size());
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i-- > 1;)
            std::swap(order[i], order[size_t(random.integer(0, int64_t(i)))]);
        INFO(describe(x));
        const Tensor y = permute(x, order);
        Integers want;
        each_index(y.shape(), [&](const Dims& index) {
            Dims from(index.size());
            for (size_t k = 0; k < index.size(); ++k) from[size_t(order[k])] = index[k];
            want.push_back(int64_t(offset_of(shape, from)));
        });
        for (size_t k = 0; k < order.size(); ++k) REQUIRE(y.dim(int(k)) == x.dim(order[k]));
        REQUIRE(values_of(y) == want);
    }
}

TEST_CASE("expand repeats axes of size 1 and adds leading ones") {
    const Session session;
    Random random(16);
    for (int round = 0; round < 200; ++round) {
        const Dims to = random_shape(random, size_t(round % 6), 4);
        Dims shape(to.end() - random.integer(0, int64_t(to.size())), to.end());
        for (int64_t& size : shape)
            if (random.integer(0, 1)) size = 1;
        const Tensor x = numbered_tensor(random_grid(random, shape));
        INFO(describe(x) << " to " << nn::to_string(to));
        const Tensor y = expand(x, to);
        Integers want;
        each_index(to, [&](const Dims& index) {
            Dims from(index.end() - int64_t(shape.size()), index.end());
            for (size_t k = 0; k < from.size(); ++k)
                if (shape[k] == 1) from[k] = 0;
            want.push_back(int64_t(offset_of(shape, from)));
        });
        REQUIRE(y.shape() == to);
        REQUIRE(values_of(y) == want);
    }
}

// dst[dst_start + i] = src[j] as in engine/rules/copy.h: axes of src that no axis of dst follows
// stay at src_start, and axes of dst that follow none repeat.
TEST_CASE("copy_region copies a random box between random grids and leaves the rest unchanged") {
    const Session session;
    Random random(17);
    for (int round = 0; round < 400; ++round) {
        const Dims dst_shape = random_shape(random, size_t(random.integer(0, 4)));
        const Dims src_shape = random_shape(random, size_t(random.integer(0, 4)));
        const Tensor src = numbered_tensor(random_grid(random, src_shape), 1000);
        const Tensor dst = numbered_tensor(random_grid(random, dst_shape));
        Region region;
        std::vector<int> unused(src_shape.size());
        std::iota(unused.begin(), unused.end(), 0);
        for (size_t a = 0; a < src_shape.size(); ++a)
            region.src_start.push_back(random.integer(0, src_shape[a] - 1));
        for (int64_t size : dst_shape) {
            int from = -1;
            if (!unused.empty() && random.integer(0, 3)) {
                const size_t pick = size_t(random.integer(0, int64_t(unused.size()) - 1));
                from = unused[pick];
                unused.erase(unused.begin() + int64_t(pick));
            }
            region.dst_start.push_back(random.integer(0, size - 1));
            int64_t room = size - region.dst_start.back();
            if (from >= 0)
                room = std::min(room, src_shape[size_t(from)] - region.src_start[size_t(from)]);
            region.extent.push_back(random.integer(1, room));
            region.from.push_back(from);
        }
        Integers want = numbered(dst.count());
        each_index(region.extent, [&](const Dims& i) {
            Dims to = region.dst_start, from = region.src_start;
            for (size_t k = 0; k < i.size(); ++k) {
                to[k] += i[k];
                if (region.from[k] >= 0) from[size_t(region.from[k])] += i[k];
            }
            want[offset_of(dst_shape, to)] = 1000 + int64_t(offset_of(src_shape, from));
        });
        INFO(describe(src) << " into " << describe(dst));
        copy_region(dst, src, region);
        REQUIRE(values_of(dst) == want);
    }
}

TEST_CASE("copy_into refuses another shape or dtype and names both") {
    const Session session;
    const Tensor x = numbered_tensor(Grid::whole({2, 3}));
    const Tensor y(Grid::whole({3, 2}), Dtype::i64), z(Grid::whole({2, 3}), Dtype::f32);
    const std::string shapes = error_of([&] { copy_into(y, x); });
    CHECK_THAT(shapes, contains("(2,3)") && contains("(3,2)"));
    CHECK_THAT(error_of([&] { copy_into(z, x); }), contains("f32") && contains("i64"));
}

TEST_CASE("a view is stale once its source changes in place, a copy is not") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({4, 2}, {2, 2}));
    const Tensor view = slice(x, 0, 0, 2), copy = retile(x, grid_of({4, 2}, {1, 2}));
    CHECK(view.is_view());
    CHECK_FALSE(copy.is_view());
    CHECK_FALSE(view.stale());
    write_tensor(x, numbered(8, 100).data());
    CHECK(view.stale());
    CHECK_FALSE(copy.stale());
    CHECK_FALSE(x.stale());
    CHECK(values_of(copy) == numbered(8));
    CHECK(values_of(view.refreshed_view()) == numbered(4, 100));
    CHECK_THAT(error_of([&] { write_tensor(view, numbered(4).data()); }), contains("view"));
}

TEST_CASE("a copy of a tensor into itself reads the old values, for any cuts") {
    const Session session;
    for (int64_t tile : {1, 2, 3, 6}) {
        const Tensor x = numbered_tensor(grid_of({6}, {tile}));
        INFO("tiles of " << tile);
        op("assign_", {x, slice(x, 0, 0, 4)}, {list({3})});
        CHECK(values_of(x) == Integers{0, 1, 0, 1, 2, 3});
    }
}

}  // namespace nn::engine_test
