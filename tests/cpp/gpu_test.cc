// The engine on GPUs. tests/lua/gpus/training.lua runs these tests on emulated GPUs; without GPUs
// they are skipped.
#include <starpu.h>

#include "engine/workers/handles.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

TEST_CASE("a tile that a task on a GPU wrote can be evicted for a prefetch") {
    const Session session;
    if (gpus() == 0) {
        WARN("skipped: this machine has no GPU");
        return;
    }
    std::vector<Tensor> tensors;
    for (int i = 0; i < 50; ++i) tensors.push_back(filled(Grid::whole({1000}), Dtype::f32, i));
    wait_all();
    int on_gpus = 0, evictable = 0;
    for (const Tensor& tensor : tensors)
        for (int node = 1; node < memory_nodes(); ++node) {
            const Tile& tile = *tensor.tile(0);
            if (!is_valid_on(tile, node)) continue;
            ++on_gpus;
            evictable += starpu_data_can_evict(static_cast<starpu_data_handle_t>(tile.handle),
                                               unsigned(node), STARPU_PREFETCH);
        }
    CHECK(on_gpus == 50);
    CHECK(evictable == 50);
}

}  // namespace
}  // namespace nn::engine_test
