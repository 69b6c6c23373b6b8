#include "engine/graph/builder.h"

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/machine/ranks.h"

namespace nn {
namespace {

bool temporaries_visible = false;

// Whether only another rank keeps what an eager task changes; then it runs there.
bool runs_elsewhere(const Task& task) {
    for (int i = 0; i < task.handles; ++i) {
        const Tile& tile = *task.tiles[i];
        if (task.writes(i) && tile.only_owner && tile.owner != ranks().rank) return true;
    }
    return false;
}

}  // namespace

TemporariesVisible::TemporariesVisible() { temporaries_visible = true; }
TemporariesVisible::~TemporariesVisible() { temporaries_visible = false; }

TaskBuilder::TaskBuilder(const char* kernel, Dtype dtype) {
    std::memset(&task_.arg, 0, sizeof task_.arg);
    task_.arg.kernel = find_kernel(kernel);
    if (!task_.arg.kernel) fail("unknown kernel '%s'", kernel);
    task_.arg.op = current_op();
    task_.arg.in_place = current_op_is_in_place();
    task_.arg.layer = current_layer();
    task_.arg.dtype = dtype;
}

// A tile may be several operands; StarPU needs it once, with the strongest access mode.
TaskBuilder& TaskBuilder::use(const Use& use) {
    TaskArg& arg = task_.arg;
    if (arg.operands == max_operands)
        fail("%s: more than %d operands", arg.kernel->name.c_str(), max_operands);
    int16_t& buffer = arg.buffer_of[arg.operands++];
    buffer = -1;
    if (!use.tile) return *this;
    for (int i = 0; i < task_.handles; ++i)
        if (task_.tiles[i] == use.tile) {
            buffer = int16_t(i);
            if (task_.modes[i] != use.mode) task_.modes[i] = Mode::read_write;
            return *this;
        }
    buffer = int16_t(task_.handles);
    task_.add_tile(use.tile, use.mode);
    arg.bytes += float(use.tile->bytes) * (use.mode == Mode::read_write ? 2 : 1);
    return *this;
}

TaskBuilder& TaskBuilder::use(std::initializer_list<Use> uses) {
    for (const Use& one : uses) use(one);
    return *this;
}

TaskBuilder& TaskBuilder::raw_params(const void* params, size_t bytes) {
    if (bytes != task_.arg.kernel->params_size)
        fail("%s: its parameters are a %s of %zu bytes, not %zu", task_.arg.kernel->name.c_str(),
             task_.arg.kernel->params_type.c_str(), task_.arg.kernel->params_size, bytes);
    std::memcpy(task_.arg.params, params, bytes);
    return *this;
}

void TaskBuilder::emit() {
    const uint32_t recording = recording_number();
    if (!recording && ranks().several() && runs_elsewhere(task_)) return;
    for (int i = 0; i < task_.handles; ++i) {
        const Tile& tile = *task_.tiles[i];
        if (tile.recording && tile.recording != recording && !temporaries_visible)
            fail(
                "%s: this tensor exists only inside the compiled function that made it; return it "
                "from there to use it outside",
                task_.arg.op);
        if (task_.modes[i] != Mode::write) tile.check_readable(task_.arg.op);
    }
    sink().emit(std::move(task_));
}

void TaskBuilder::emit(int64_t tile, const Dims& extent, double element_flops) {
    task_.arg.tile = int32_t(tile);
    task_.arg.rank = int32_t(extent.size());
    for (size_t i = 0; i < extent.size(); ++i) task_.arg.extent[i] = int32_t(extent[i]);
    task_.arg.flops += float(element_flops * double(product(extent)));
    emit();
}

}  // namespace nn
