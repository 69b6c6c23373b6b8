// Tiles, and building tasks: into the program being recorded, or for submission.
#include "engine/task.h"

#include <starpu.h>

#include <unordered_set>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/profile.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {

namespace {

bool temporaries_visible = false;
uint64_t tiles_made = 0;

// Tasks of the op in progress, and the tiles that only these tasks give a value.
bool emission = false;
std::vector<Task> emitted;
std::vector<std::pair<TilePtr, uint32_t>> first_written;

// Tiles with a handle. Never destroyed: tiles may be freed while the process ends.
std::unordered_set<Tile*>& registered_tiles() {
    static auto* const tiles = new std::unordered_set<Tile*>;
    return *tiles;
}

}  // namespace

TemporariesVisible::TemporariesVisible() { temporaries_visible = true; }
TemporariesVisible::~TemporariesVisible() { temporaries_visible = false; }

Tile::Tile(size_t size) : bytes(size), number(++tiles_made), recording(recording_number()) {
    if (recording) return;
    if (!has_memory(int64_t(size))) out_of_memory(int64_t(size), "a tile");
    count_tensor_bytes(int64_t(size));
}

Tile::~Tile() {
    if (!recording) count_tensor_bytes(-int64_t(bytes));
    if (!handle_) return;
    registered_tiles().erase(this);
    starpu_data_unregister_submit(handle_);
}

starpu_data_handle_t Tile::handle() {
    if (!handle_) {
        start();
        registered_tiles().insert(this);
        starpu_variable_data_register(&handle_, -1, 0, bytes);
    }
    return handle_;
}

void Tile::drop_handle() {
    starpu_data_unregister_no_coherency(handle_);
    handle_ = nullptr;
}

void forget_values(const std::unordered_set<starpu_data_handle_t>& failed) {
    for (Tile* tile : registered_tiles())
        if (!tile->recording && failed.count(tile->handle())) tile->set_failed();
}

void drop_handles() {
    for (Tile* tile : registered_tiles()) tile->drop_handle();
    registered_tiles().clear();
}

bool Tile::has_value() const { return handle_ && written_in_ == runtime_number(); }
void Tile::set_written() {
    written_in_ = runtime_number();
    failed_ = false;
}

bool Tile::is_valid_at(int place) const {
    int allocated, valid = 0, loading, requested;
    if (has_value())
        starpu_data_query_status2(handle_, place, &allocated, &valid, &loading, &requested);
    return valid != 0;
}
void Tile::check_readable(const char* op) const {
    if (has_value() || (recorded_ && recording_number())) return;
    if (failed_)
        fail("%s: needs a tensor that was not computed, since a task before it failed", op);
    if (written_in_) fail("%s: reads a tensor whose value ended with the engine's shutdown", op);
    fail("%s: reads a tensor that was never given a value", op);
}

TaskBuilder::TaskBuilder(const char* kernel, Dtype dtype) {
    std::memset(&task_.arg, 0, sizeof task_.arg);
    task_.arg.kernel = find_kernel(kernel);
    if (!task_.arg.kernel) fail("there is no kernel named '%s'", kernel);
    task_.arg.op = current_op();
    task_.arg.in_place = current_op_in_place();
    task_.arg.layer = current_layer();
    task_.arg.dtype = dtype;
}

// The same tile may serve several operands; StarPU wants it once, with the strongest access.
TaskBuilder& TaskBuilder::use(const Use& use) {
    TaskArg& arg = task_.arg;
    if (arg.operands == max_operands)
        fail("%s: more than %d operands", arg.kernel->name.c_str(), max_operands);
    int8_t& buffer = arg.buffer_of[arg.operands++];
    buffer = -1;
    if (!use.tile) return *this;
    for (int i = 0; i < task_.handles; ++i)
        if (task_.tiles[i] == use.tile) {
            buffer = int8_t(i);
            if (task_.modes[i] != use.mode) task_.modes[i] = Mode::read_write;
            return *this;
        }
    buffer = int8_t(task_.handles);
    task_.tiles[task_.handles] = use.tile;
    task_.modes[task_.handles++] = use.mode;
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

TaskBuilder& TaskBuilder::flops(double count) {
    task_.arg.flops = float(count);
    return *this;
}

TaskBuilder& TaskBuilder::tile(int64_t number, const Dims& extent) {
    task_.arg.tile = int32_t(number);
    task_.arg.rank = int32_t(extent.size());
    for (size_t i = 0; i < extent.size(); ++i) task_.arg.extent[i] = int32_t(extent[i]);
    return *this;
}

TaskBuilder& TaskBuilder::patch(const std::vector<Patch>& patches) {
    task_.patches.insert(task_.patches.end(), patches.begin(), patches.end());
    return *this;
}

TaskBuilder& TaskBuilder::priority(int value) {
    task_.priority = value;
    return *this;
}

TaskBuilder& TaskBuilder::where(uint32_t where) {
    task_.where = where;
    return *this;
}

TaskBuilder& TaskBuilder::splits(bool splits) {
    task_.splits = splits;
    return *this;
}

void TaskBuilder::emit() {
    const uint32_t recording = recording_number();
    for (int i = 0; i < task_.handles; ++i) {
        Tile& tile = *task_.tiles[i];
        if (tile.recording && tile.recording != recording && !temporaries_visible)
            fail(
                "%s: this tensor exists only inside the compiled function that made it; return it "
                "from there to use "
                "it outside",
                task_.arg.op);
        if (task_.modes[i] != Mode::write) tile.check_readable(task_.arg.op);
    }
    if (Program* program = recording_program()) {
        for (int i = 0; i < task_.handles; ++i)
            if (task_.modes[i] != Mode::read) task_.tiles[i]->set_recorded();
        program->add(std::move(task_));
    } else if (emission) {
        start();
        for (int i = 0; i < task_.handles; ++i) {
            if (task_.modes[i] == Mode::read || task_.tiles[i]->has_value()) continue;
            first_written.push_back({task_.tiles[i], task_.tiles[i]->written_in()});
            task_.tiles[i]->handle();
            task_.tiles[i]->set_written();
        }
        emitted.push_back(std::move(task_));
    } else {
        submit_now(task_);
    }
}

Emission::Emission() { emission = true; }

Emission::~Emission() {
    emission = false;
    for (const auto& [tile, runtime] : first_written) tile->set_written_in(runtime);
    first_written.clear();
    emitted.clear();
}

void Emission::submit() {
    const InterruptsDeferred until_all_are_submitted;
    const ProfileSpan span(ProfileSpan::submit, emitted.empty() ? nullptr : &emitted.front().arg);
    for (const Task& task : emitted) submit_now(task);
    first_written.clear();
    emitted.clear();
}

}  // namespace nn
