// Several disks as one store: it keeps what is written, and an error of one is the error of a
// transfer.
#include "engine/memory/striped_store.h"

#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/memory/disk.h"
#include "tests/cpp/disk_test.h"

namespace nn::engine_test {
namespace {

std::unique_ptr<Store> disk(const Folder& folder) {
    return std::make_unique<Disk>(Disk::Options{folder.path});
}

StripedStore three_disks(const Folder& folder) {
    std::vector<std::unique_ptr<Store>> disks;
    for (int i = 0; i < 3; ++i) disks.push_back(disk(folder));
    return StripedStore(std::move(disks));
}

// Bytes that differ from place to place.
Block random_block(int64_t bytes, unsigned seed) {
    Block out = block(disk_bytes(bytes), 0);
    std::mt19937 random(seed);
    for (int64_t i = 0; i < bytes; ++i) out.get()[i] = char(random());
    return out;
}

}  // namespace

TEST_CASE("several disks keep what is written, in pieces of all sizes") {
    const Folder folder;
    StripedStore store = three_disks(folder);
    constexpr int64_t piece = StripedStore::least_piece;
    const int64_t sizes[] = {1,         5000,          piece,         2 * piece - 1,
                             2 * piece, 3 * piece + 1, 4 * piece - 9, 7 * piece + 4097};
    std::vector<int64_t> places;
    std::vector<Block> blocks;
    Waiter waiter;
    int64_t all = 0;
    for (const int64_t bytes : sizes) {
        all += disk_bytes(bytes);
        places.push_back(store.allocate(bytes, "a tile"));
        blocks.push_back(random_block(bytes, unsigned(bytes)));
        store.write(places.back(), blocks.back().get(), bytes, 0, "a tile", waiter.note());
    }
    int done = int(std::size(sizes));
    waiter.wait(done);
    CHECK(store.allocated_bytes() == all);
    for (size_t i = 0; i < std::size(sizes); ++i) {
        const Block read = block(disk_bytes(sizes[i]), 0x55);
        store.read(places[i], read.get(), sizes[i], 0, "a tile", waiter.note());
        waiter.wait(++done);
        CHECK(std::memcmp(read.get(), blocks[i].get(), size_t(sizes[i])) == 0);
    }
    CHECK(waiter.error == "");
    CHECK(store.totals().written == all);
    CHECK(store.totals().read == all);
    for (size_t i = 0; i < std::size(sizes); ++i) store.release(places[i], sizes[i]);
    CHECK(store.allocated_bytes() == 0);
    CHECK(store.allocate(piece, "a tile") == places.back());  // places are used again
}

TEST_CASE("a tile in the place of a larger one moves its own bytes only") {
    const Folder folder;
    StripedStore store = three_disks(folder);
    const int64_t large = 3 * StripedStore::least_piece, small = large / 2;
    const int64_t place = store.allocate(large, "a tile");
    const Block data = random_block(small, 7), read = block(large, 0x55);
    Waiter waiter;
    store.write(place, data.get(), small, 0, "a tile", waiter.note());
    waiter.wait(1);
    store.read(place, read.get(), small, 0, "a tile", waiter.note());
    waiter.wait(2);
    CHECK(std::memcmp(read.get(), data.get(), size_t(small)) == 0);
    CHECK(std::count(read.get() + small, read.get() + large, 0x55) == large - small);
}

TEST_CASE("a piece that fails is one error of its transfer, and a full disk keeps nothing") {
    const Folder folder;
    std::vector<std::unique_ptr<Store>> disks;
    disks.push_back(disk(folder));
    setenv("NNLUA_FAIL_DISK", "write:1:5,reserve:2:28", 1);
    disks.push_back(disk(folder));
    unsetenv("NNLUA_FAIL_DISK");
    StripedStore store(std::move(disks));
    constexpr int64_t bytes = 2 * StripedStore::least_piece;
    const int64_t place = store.allocate(bytes, "a tile");
    const Block data = block(bytes, 1);
    Waiter waiter;
    store.write(place, data.get(), bytes, 0, "the tile", waiter.note());
    waiter.wait(1);
    CHECK(waiter.done == 1);
    CHECK_THAT(waiter.error, contains("the tile cannot be written to the disk folder"));
    CHECK_THROWS_WITH(store.allocate(2 * bytes, "a tile"), contains("cannot get space"));
    CHECK(store.allocated_bytes() == bytes);
}

}  // namespace nn::engine_test
