// The arena behind StarPU's allocations, the accounting of bytes, and the budget.
#include <sys/sysinfo.h>

#include <fstream>
#include <map>

#include "engine/machine/memory_limit.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

Tensor bytes_tensor(int64_t bytes) { return Tensor(Grid::whole({bytes}), Dtype::u8); }

struct Filled {
    unsigned char* block;
    size_t bytes;
    unsigned char value;
    bool intact() const {
        return std::all_of(block, block + bytes, [&](unsigned char b) { return b == value; });
    }
};

}  // namespace

TEST_CASE("blocks of the arena are aligned and never overlap") {
    Random random(1);
    std::vector<Filled> live;
    const ArenaInfo before = arena_info();
    for (int i = 0; i < 4000; ++i) {
        if (!live.empty() && random.integer(0, 1)) {
            std::swap(live[size_t(random.integer(0, int64_t(live.size()) - 1))], live.back());
            REQUIRE(live.back().intact());
            arena_free(live.back().block, live.back().bytes);
            live.pop_back();
            continue;
        }
        const size_t bytes = size_t(random.integer(1, int64_t(1) << random.integer(1, 15)));
        auto* block = static_cast<unsigned char*>(arena_allocate(bytes));
        REQUIRE(uintptr_t(block) % 64 == 0);
        live.push_back({block, bytes, static_cast<unsigned char>(i)});
        std::memset(block, live.back().value, bytes);
    }
    for (const Filled& f : live) {
        REQUIRE(f.intact());
        arena_free(f.block, f.bytes);
    }
    CHECK(arena_info().in_use == before.in_use);
    arena_trim();
    CHECK(arena_info().cached == 0);
}

namespace {

// What a GPU's driver would keep: address and length of pinned memory.
std::map<char*, size_t> known;
bool refuse = false;
bool pin(void* block, size_t bytes) {
    if (refuse) return false;
    return uintptr_t(block) % 4096 == 0 && known.emplace(static_cast<char*>(block), bytes).second;
}
void unpin(void* block) { REQUIRE(known.erase(static_cast<char*>(block)) == 1); }

bool is_pinned(void* block, size_t bytes) {
    auto it = known.upper_bound(static_cast<char*>(block));
    if (it == known.begin()) return false;
    --it;
    return static_cast<char*>(block) + bytes <= it->first + it->second;
}

}  // namespace

TEST_CASE("with GPUs all memory of the arena is pinned, and unpinned at the end") {
    refuse = false;
    set_pinning({pin, unpin});
    Random random(3);
    std::vector<Filled> live;
    for (int i = 0; i < 600; ++i) {
        const size_t bytes = size_t(random.integer(1, int64_t(1) << random.integer(1, 22)));
        auto* block = static_cast<unsigned char*>(arena_allocate(bytes));
        REQUIRE(is_pinned(block, bytes));
        live.push_back({block, bytes, static_cast<unsigned char>(i)});
        std::memset(block, live.back().value, bytes);
        if (random.integer(0, 1)) {
            REQUIRE(live.front().intact());
            arena_free(live.front().block, live.front().bytes);
            live.erase(live.begin());
        }
        if (i == 300) arena_trim();
    }
    for (const Filled& f : live) {
        REQUIRE(f.intact());
        arena_free(f.block, f.bytes);
    }
    CHECK_FALSE(known.empty());
    set_pinning({});
    CHECK(known.empty());
    CHECK(arena_info().cached == 0);
}

TEST_CASE("a thread gets memory while another pins") {
    static std::atomic<bool> is_pinning{false}, has_memory{false};
    static bool had_memory = false;
    const auto pin = [](void*, size_t) {
        if (is_pinning.exchange(true)) return true;
        for (int i = 0; i < 2000 && !has_memory; ++i)  // much longer than an allocation takes
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        had_memory = has_memory;
        return true;
    };
    set_pinning({pin, [](void*) {}});
    constexpr size_t bytes = size_t(3) << 20;
    void* first = nullptr;
    std::thread thread([&] { first = arena_allocate(bytes); });
    while (!is_pinning) std::this_thread::yield();
    void* const second = arena_allocate(2 * bytes);
    has_memory = true;
    thread.join();
    CHECK(had_memory);
    arena_free(first, bytes);
    arena_free(second, 2 * bytes);
    set_pinning({});
}

TEST_CASE("memory that cannot be pinned is used unpinned") {
    refuse = true;
    set_pinning({pin, unpin});
    for (size_t bytes : {size_t(100), size_t(1) << 20}) {
        void* block = arena_allocate(bytes);
        REQUIRE(block);
        std::memset(block, 1, bytes);
        arena_free(block, bytes);
    }
    set_pinning({});
    CHECK(arena_info().cached == 0);
}

TEST_CASE("a block is at most an eighth larger than requested, or one cache line") {
    Random random(2);
    for (int i = 0; i < 300; ++i) {
        const int64_t bytes = random.integer(1, int64_t(1) << random.integer(1, 25));
        const int64_t before = arena_info().in_use;
        void* block = arena_allocate(size_t(bytes));
        const int64_t taken = arena_info().in_use - before;
        arena_free(block, size_t(bytes));
        INFO(bytes);
        REQUIRE(taken >= bytes);
        REQUIRE(taken <= bytes + std::max<int64_t>(63, bytes / 8));
    }
    arena_trim();
}

TEST_CASE("a freed block is reused for a tile of nearly the same size") {
    arena_trim();
    void* block = arena_allocate(100'000);
    arena_free(block, 100'000);
    CHECK(arena_info().cached >= 100'000);
    CHECK(arena_allocate(100'100) == block);
    CHECK(arena_info().cached == 0);
    arena_free(block, 100'100);
    arena_trim();
}

// Linux limits the mappings of a process (vm.max_map_count).
TEST_CASE("many mapped blocks of one size are few mappings of the process") {
    const auto mappings = [] {
        std::ifstream file("/proc/self/maps");
        int count = 0;
        for (std::string line; std::getline(file, line);) ++count;
        return count;
    };
    arena_trim();
    for (const size_t bytes : {size_t(1) << 20, size_t(2) << 20, size_t(4) << 20}) {
        const int before = mappings();
        std::vector<void*> blocks;
        for (int i = 0; i < 100; ++i) blocks.push_back(arena_allocate(bytes));
        CHECK(mappings() < before + 20);
        for (void* block : blocks) arena_free(block, bytes);
        arena_trim();
    }
}

TEST_CASE("the peak is the highest use since its reset") {
    reset_peak();
    const int64_t start = arena_info().in_use;
    void *a = arena_allocate(64'000), *b = arena_allocate(64'000);
    arena_free(a, 64'000);
    CHECK(arena_info().peak == start + 2 * (arena_info().in_use - start));
    reset_peak();
    CHECK(arena_info().peak == arena_info().in_use);
    arena_free(b, 64'000);
    arena_trim();
}

TEST_CASE("cached blocks of other sizes are freed before the budget is exceeded") {
    arena_trim();
    set_budget(arena_info().in_use + 1'000'000);
    arena_free(arena_allocate(600'000), 600'000);
    CHECK(arena_info().cached > 0);
    void* block = arena_allocate(700'000);
    CHECK(arena_info().cached == 0);
    arena_free(block, 700'000);
    arena_trim();
    set_budget(0);
}

TEST_CASE("the default budget is part of the machine's memory") {
    struct sysinfo machine {};
    REQUIRE(sysinfo(&machine) == 0);
    CHECK(available_memory(2, 0) > 0);
    CHECK(double(available_memory(2, 0)) < double(machine.totalram) * machine.mem_unit);
    set_budget(12345);
    CHECK(budget() == 12345);
    set_budget(0);
    CHECK(budget() > 12345);
}

TEST_CASE("a tensor beyond the budget is refused with the bytes needed and available") {
    const Session session;
    REQUIRE(admitted_bytes() == 0);
    set_budget(1'000'000);
    Tensor first = bytes_tensor(589'824);  // these sizes are not rounded up
    CHECK(error_of([] { bytes_tensor(500'000); }) ==
          "out of memory: task's result (500000) u8 of 500 kB does not fit; 590 kB of the budget "
          "of 1.0 MB are in use");
    CHECK_THROWS_AS(bytes_tensor(500'000), OutOfMemory);
    CHECK(admitted_bytes() == 589'824);
    // Some of its tiles would fit; they are freed with the rest.
    CHECK_THROWS_AS(Tensor(grid_of({500'000}, {100'000}), Dtype::u8), OutOfMemory);
    CHECK(admitted_bytes() == 589'824);
    const Tensor fits = bytes_tensor(393'216);
    first = Tensor();
    const Tensor again = bytes_tensor(589'824);
    CHECK(admitted_bytes() == 983'040);
}

TEST_CASE("an op that does not fit is refused, and its inputs keep their values") {
    const Session session;
    const Tensor x = numbered_tensor(Grid::whole({1000}));
    set_budget(20'000);  // x takes 8192, and 5120 for its handle
    CHECK_THROWS_AS(op("neg", {x}), OutOfMemory);
    CHECK_THROWS_AS(op("to", {x}, {text("f64")}), OutOfMemory);
    CHECK(values_of(x) == numbered(1000));
    CHECK(op("to", {x}, {text("f32")}).count() == 1000);
}

TEST_CASE("the bytes of every tile count while it exists, and those of views once") {
    const Session session;
    const int64_t before = admitted_bytes();
    {
        const Tensor x = numbered_tensor(grid_of({6, 4}, {3, 4}));
        CHECK(admitted_bytes() == before + 2 * int64_t(arena_bytes(3 * 4 * 8)));
        const Tensor view = reshape(x, {24});
        REQUIRE(tiles_of(view) == tiles_of(x));
        CHECK(admitted_bytes() == before + 2 * int64_t(arena_bytes(3 * 4 * 8)));
    }
    CHECK(admitted_bytes() == before);
}

TEST_CASE("the records of many small tensors count, and those of a program before its first run") {
    const Session session;
    const Tensor x = scalar_of(2);
    const auto program = compile({x}, [](const std::vector<Tensor>& in) {
        Tensor y = in[0];
        for (int i = 0; i < 300; ++i) y = op("neg", {y});
        return std::vector<Tensor>{y};
    });
    set_budget(1'000'000);
    CHECK_THROWS_AS(program->run({x}), OutOfMemory);
    std::vector<Tensor> many;
    const auto create = [&] {
        while (many.size() < 1000) many.push_back(op("neg", {x}));
    };
    CHECK_THROWS_AS(create(), OutOfMemory);
    CHECK(many.size() > 100);
    CHECK(many.size() < 200);
    many.clear();
    wait_all();
    CHECK(values_of(op("neg", {x}))[0] == -2);
    set_budget(0);
    CHECK(values_of(program->run({x})[0])[0] == 2);
}

TEST_CASE("a tensor takes no memory before it is written and none after it is destroyed") {
    const Session session;
    {
        const Tensor x = bytes_tensor(8 << 20);
        CHECK(arena_info().in_use < 8 << 20);
        fill(x, 1);
        wait_all();
        CHECK(arena_info().in_use >= 8 << 20);
    }
    wait_all();
    if (gpus() == 0) CHECK(arena_info().in_use < 8 << 20);  // with GPUs StarPU keeps it
    shutdown();
    CHECK(arena_info().in_use == 0);
    CHECK(arena_info().cached == 0);
}

TEST_CASE("recording takes no memory and ignores the budget, unlike running") {
    const Session session;
    const Tensor x = scalar_of(2);
    set_budget(1'000'000);
    const int64_t before = admitted_bytes();
    const auto program = compile({x}, [](const std::vector<Tensor>& in) {
        const Tensor big = op("expand", {in[0]}, {list({1'000'000})});
        return std::vector<Tensor>{op("sum", {big})};
    });
    CHECK(admitted_bytes() == before);
    CHECK(program->program().info.peak_bytes >= 8'000'000);
    CHECK_THROWS_AS(program->run({x}), OutOfMemory);
    CHECK_THAT(error_of([&] { program->run({x}); }),
               contains("8.4 MB") && contains("budget of 1.0 MB"));
    set_budget(0);
    CHECK(values_of(program->run({x})[0])[0] == 2'000'000);
}

}  // namespace nn::engine_test
