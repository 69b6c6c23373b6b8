// Shapes and grids: broadcasting by PyTorch's rules, cuts, and the numbering of tiles, each against
// a definition written out here. Results are exact.
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {

TEST_CASE("a product of sizes covers a half-open range of axes and is 1 for an empty one") {
    CHECK(product({}) == 1);
    CHECK(product({7}) == 7);
    CHECK(product({2, 3, 5}) == 30);
    CHECK(product({2, 3, 5}, 1) == 15);
    CHECK(product({2, 3, 5}, 1, 2) == 3);
    CHECK(product({2, 3, 5}, 3) == 1);
    CHECK(product({2, 3, 5}, 2, 1) == 1);
}

TEST_CASE("a shape whose element count overflows is refused") {
    CHECK(product({int64_t(1) << 30, int64_t(1) << 20}) == int64_t(1) << 50);
    CHECK_THAT(error_of([] {
                   product({int64_t(1) << 40, int64_t(1) << 40});
               }),
               contains("(1099511627776,1099511627776)"));
    CHECK_FALSE(error_of([] { product({INT64_MAX, 2}); }).empty());
    CHECK_FALSE(error_of([] { product({INT64_MAX, INT64_MAX, 0}); }).empty());
    CHECK_FALSE(error_of([] { Tensor(Grid::whole({INT64_MAX}), Dtype::f64); }).empty());
    CHECK_FALSE(error_of([] { choose_grid({INT64_MAX / 2, 3}, Dtype::f32, {}); }).empty());
}

TEST_CASE("shapes print as a list in parentheses") {
    CHECK(nn::to_string(Dims{}) == "()");
    CHECK(nn::to_string(Dims{2}) == "(2)");
    CHECK(nn::to_string(Dims{2, -1, 30}) == "(2,-1,30)");
}

TEST_CASE("row-major strides are products of the later sizes") {
    CHECK(row_major_strides({}) == Dims{});
    CHECK(row_major_strides({4}) == Dims{1});
    CHECK(row_major_strides({2, 3, 5}) == Dims{15, 5, 1});
}

// From the last axis backwards, sizes must be equal or one of them 1; a missing axis counts as 1.
TEST_CASE("broadcasting follows PyTorch's rules for random shapes") {
    Random random(1);
    int matches = 0;
    for (int round = 0; round < 2000; ++round) {
        const Dims a = random_shape(random, size_t(random.integer(0, 4)), 3);
        const Dims b = random_shape(random, size_t(random.integer(0, 4)), 3);
        Dims want(std::max(a.size(), b.size()));
        bool possible = true;
        for (size_t i = 1; i <= want.size(); ++i) {
            const int64_t da = i <= a.size() ? a[a.size() - i] : 1;
            const int64_t db = i <= b.size() ? b[b.size() - i] : 1;
            possible &= da == db || da == 1 || db == 1;
            want[want.size() - i] = std::max(da, db);
        }
        INFO(nn::to_string(a) << " and " << nn::to_string(b));
        Dims got, other;
        REQUIRE(broadcast(a, b, &got) == possible);
        REQUIRE(broadcast(b, a, &other) == possible);
        if (!possible) continue;
        ++matches;
        REQUIRE(got == want);
        REQUIRE(other == want);
    }
    CHECK(matches > 200);
    CHECK(matches < 1800);
}

TEST_CASE("the last tile is smaller where the tile size does not divide the axis") {
    CHECK(cut_every(10, 4) == Cuts{0, 4, 8, 10});
    CHECK(cut_every(8, 4) == Cuts{0, 4, 8});
    CHECK(cut_every(3, 4) == Cuts{0, 3});
    CHECK(cut_every(3, 1) == Cuts{0, 1, 2, 3});
    CHECK(cut_every(3, INT64_MAX) == Cuts{0, 3});
    CHECK(whole(5) == Cuts{0, 5});
}

TEST_CASE("an even cut makes as few tiles as possible, whose sizes differ by at most one") {
    Random random(2);
    for (int round = 0; round < 1000; ++round) {
        const int64_t size = random.integer(1, 500), tile = random.integer(1, 600);
        INFO(size << " in tiles of at most " << tile);
        const Cuts cuts = cut_evenly(size, tile);
        REQUIRE(int64_t(cuts.size()) - 1 == (size + tile - 1) / tile);
        REQUIRE(cuts.front() == 0);
        REQUIRE(cuts.back() == size);
        int64_t smallest = size, largest = 0;
        for (size_t i = 1; i < cuts.size(); ++i) {
            smallest = std::min(smallest, cuts[i] - cuts[i - 1]);
            largest = std::max(largest, cuts[i] - cuts[i - 1]);
        }
        REQUIRE(smallest >= 1);
        REQUIRE(largest <= tile);
        REQUIRE(largest - smallest <= 1);
    }
    const Cuts large = cut_evenly(int64_t(1) << 58, int64_t(1) << 40);
    REQUIRE(large.size() == (1 << 18) + 1);
    CHECK(large[1] == int64_t(1) << 40);
    CHECK(large.back() == int64_t(1) << 58);
}

TEST_CASE("a cut into too many tiles is refused") {
    CHECK_THAT(error_of([] { cut_every(int64_t(1) << 50, 1); }), contains("tiles"));
    CHECK_THAT(error_of([] { cut_evenly(int64_t(1) << 50, 2); }), contains("tiles"));
    const Cuts fine = cut_every(int64_t(1) << 20, 1);
    CHECK_THAT(error_of([&] { Tensor(Grid({fine, fine}), Dtype::f32); }), contains("tiles"));
}

TEST_CASE("tile numbers and positions convert both ways, row-major, for random grids") {
    Random random(3);
    for (int round = 0; round < 300; ++round) {
        const Grid grid = random_grid(random, random_shape(random, size_t(round % 6), 6));
        INFO(to_string(grid));
        Dims counts;
        for (size_t axis = 0; axis < grid.rank(); ++axis) counts.push_back(grid.tiles(axis));
        REQUIRE(grid.tiles() == product(counts));
        int64_t number = 0;
        each_index(counts, [&](const Dims& index) {
            REQUIRE(grid.index(number) == index);
            REQUIRE(grid.number(index) == number);
            ++number;
        });
        REQUIRE(number == grid.tiles());
    }
}

TEST_CASE("the blocks of a random grid contain every element once") {
    Random random(4);
    for (int round = 0; round < 300; ++round) {
        const Dims shape = random_shape(random, size_t(round % 6), 6);
        const Grid grid = random_grid(random, shape);
        INFO(to_string(grid));
        REQUIRE(grid.shape() == shape);
        std::vector<int> seen(size_t(product(shape)), 0);
        for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
            const Block block = grid.block(tile);
            REQUIRE(block.count() == product(block.extent));
            REQUIRE(block.count() >= 1);
            each_index(block.extent, [&](Dims index) {
                for (size_t axis = 0; axis < index.size(); ++axis) index[axis] += block.start[axis];
                ++seen.at(offset_of(shape, index));
            });
        }
        REQUIRE(std::count(seen.begin(), seen.end(), 1) == product(shape));
    }
}

TEST_CASE("grids are equal when all their cuts are") {
    CHECK(Grid::whole({2, 3}) == Grid({{0, 2}, {0, 3}}));
    CHECK_FALSE(Grid::whole({2, 3}) == Grid({{0, 2}, {0, 1, 3}}));
    CHECK_FALSE(Grid::whole({2, 3}) == Grid::whole({2, 3, 1}));
    CHECK(Grid::whole({}).tiles() == 1);
    CHECK(Grid::whole({}).block(0).count() == 1);
}

TEST_CASE("axis names choose tile sizes, and without any only very large tensors are cut") {
    set_tile_size("rows", 3);
    CHECK(choose_grid({8, 5}, Dtype::f32, {"rows", "other"}) == grid_of({8, 5}, {3, 5}));
    CHECK(choose_grid({8, 5}, Dtype::f32, {"", "rows"}) == grid_of({8, 5}, {8, 3}));
    CHECK(choose_grid({8, 5}, Dtype::f32, {"rows", "x", "more names than axes"}).tiles() == 3);
    set_tile_size("rows", 0);
    CHECK(tile_size("rows") == 0);
    CHECK(choose_grid({8, 5}, Dtype::f32, {"rows"}) == Grid::whole({8, 5}));
    CHECK(choose_grid({1 << 20, 16}, Dtype::f32, {}).tiles() == 1);
    CHECK(choose_grid({1 << 20, 64}, Dtype::f32, {}).tiles() == 8);
    CHECK(choose_grid({}, Dtype::f32, {}).tiles() == 1);
    set_tile_size("tokens", 64);
    const Grid ids = choose_grid({4, 48}, Dtype::i32, {"batch", "time"});
    set_tile_size("tokens", 0);
    CHECK(ids.tiles(0) == 4);  // 64 tokens: one sequence of 48 and a third of the next
    CHECK(ids.tiles(1) == 1);
}

TEST_CASE("bytes print with units") {
    CHECK(human_bytes(0) == "0 B");
    CHECK(human_bytes(999) == "999 B");
    CHECK(human_bytes(1000) == "1.0 kB");
    CHECK(human_bytes(123456) == "123 kB");
    CHECK(human_bytes(4.2e9) == "4.2 GB");
    CHECK(human_bytes(3e18) == "3000 PB");
}

}  // namespace nn::engine_test
