#include "engine/runtime/ranks.h"

#include <nn_version.h>

#include "engine/base/error.h"
#include "engine/graph/passes/distribute.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/ranks/transport.h"
#include "engine/runtime/handles.h"
#include "engine/runtime/homes.h"
#include "engine/runtime/interrupts.h"
#include "engine/runtime/submit.h"
#include "kernels/products/products.h"

namespace nn {
namespace {

int64_t distributed = 0;  // programs; the same number on every rank

}  // namespace

void start_ranks(const std::string& work) {
    take_share_of_cores();
    transport::open();
    control::start({{"version of nnlua", NN_VERSION " " NN_VERSION_GIT},
                    {"script and arguments", work},
                    {"kernels", cpu_target().name}});
}

void finish_ranks() {
    control::finish();
    transport::finish();
}

void distribute_over_ranks(Program& program) {
    if (!ranks().several() || program.shards == 0 || program.step_begin > 0) return;
    if (tiers().exist())
        fail("several ranks cannot use memory tiers yet; leave out memory.disk and memory.gpu");
    const std::string mine = format("%016llx", (unsigned long long)fingerprint(program));
    const auto all = control::gather("a compiled function", mine, check_interrupt);
    for (size_t rank = 0; rank < all.size(); ++rank)
        if (all[rank] != all[0])
            fail(
                "compile: rank %zu recorded another program than rank 0. All ranks must run the "
                "same script: its shapes and numbers may not depend on the rank, the time, the "
                "order of pairs() or the host",
                rank);
    distribute(program, {ranks().rank, ranks().count}, distributed++);
}

void submit_transfer(Task& task) {
    Tile& tile = *task.tiles[0];
    const bool sends = task.transfer == Task::Transfer::send;
    const StarpuHandle handle = handle_of(tile, sends);
    if (sends) {
        transport::send(handle, int64_t(tile.bytes), task.peer, task.tag, task.priority);
    } else {
        transport::receive(handle, int64_t(tile.bytes), task.peer, task.tag);
        tile.value = Tile::Value::written;
    }
}

void drop_kept_elsewhere(const Program& program) {
    for (const TilePtr& tile : program.kept_elsewhere) {
        if (tile->has_value()) submit_invalidation(*tile);
        tile->value = Tile::Value::remote;
    }
}

}  // namespace nn
