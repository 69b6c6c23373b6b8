#include "engine/workers/tile_checks.h"

#include <starpu.h>

#include <stdexcept>

#include "engine/io/tensor_file.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

struct Checks {
    Checks() { checks_tiles = true; }
    ~Checks() { checks_tiles = false; }
};

// Changes a byte of a tile, as only a fault does.
void alter(const Tensor& x, int64_t tile) {
    const StarpuHandle handle = handle_of(*x.tile(tile));
    REQUIRE(starpu_data_acquire(handle, STARPU_R) == 0);
    *static_cast<char*>(starpu_data_get_local_ptr(handle)) ^= 1;
    starpu_data_release(handle);
}

const TestKernel broken_kernel("test_broken", "y:w", "empty_params", sizeof(empty_params),
                               [](const KernelCall&) { throw std::runtime_error("broken"); });

}  // namespace

TEST_CASE("with checks of tiles, a value that changed is an error where it is read") {
    const Checks checks;
    const Session session(1);
    const Tensor x = numbered_tensor(grid_of({64}, {16})), y = numbered_tensor(grid_of({64}, {16}));
    op("add_", {x, scalar_of(1)});
    CHECK(values_of(x) == numbered(64, 1));
    alter(x, 2);
    CHECK_THAT(error_of([&] { values_of(x); }), contains("has changed since add_ wrote it"));
    TensorFile file("/dev/null", x.bytes());
    file.append(x);
    file.close();
    CHECK_THAT(error_of([&] { file.wait(); }), contains("has changed since add_ wrote it"));
    CHECK_THAT(error_of([&] {
                   op("add_", {x, scalar_of(1)});
                   wait_all();
               }),
               contains("has changed since add_ wrote it"));
    CHECK(values_of(y) == numbered(64));
}

TEST_CASE("two uses of the same memory at the same time are a problem if one writes") {
    const Checks checks;
    const char memory[64] = {};
    const int a = 0, b = 0, c = 0;
    memory_uses::begin(&a, memory, 32, false, "a task");
    memory_uses::begin(&b, memory + 16, 32, false, "a store");
    memory_uses::begin(&c, memory + 48, 16, true, "a load");
    for (const int* user : {&a, &b, &c}) CHECK(memory_uses::end(user).empty());
    memory_uses::begin(&a, memory, 32, false, "a task");
    memory_uses::begin(&a, memory, 32, true, "a task");
    memory_uses::begin(&b, memory + 31, 1, true, "a load");
    for (const int* user : {&a, &b})
        CHECK(memory_uses::end(user) ==
              "a load began before a task had ended, and writes the same memory");
    memory_uses::begin(&c, memory, 32, true, "a load");
    CHECK(memory_uses::end(&c).empty());
}

TEST_CASE("with checks of tiles, a value that a skipped task keeps is right") {
    const Checks checks;
    const Session session(1);
    const Tensor x = numbered_tensor(grid_of({8}, {4}));
    const Tensor bad(x.grid(), Dtype::i64);
    for (int64_t i = 0; i < bad.tiles(); ++i)
        task("test_broken", Dtype::i64).use(writes(bad.tile(i))).params(empty_params{}).emit();
    op("add_", {x, bad});
    CHECK_THAT(error_of(wait_all), contains("broken"));
    CHECK(values_of(x) == numbered(8));
    op("add_", {x, scalar_of(1)});
    CHECK(values_of(x) == numbered(8, 1));
}

}  // namespace nn::engine_test
