// Building tasks and handing them to StarPU or to the program being recorded.
#include "engine/task.h"

#include <starpu.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_set>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {

namespace {

bool temporaries_visible = false;

// Tasks of the op in progress, and the tiles that only these tasks give a value.
bool emission = false;
std::vector<Task> emitted;
std::vector<std::pair<TilePtr, uint32_t>> first_written;

// Tiles with a handle. Never destroyed: tiles may be freed while the process ends.
std::unordered_set<Tile*>& registered_tiles() {
    static auto* const tiles = new std::unordered_set<Tile*>;
    return *tiles;
}

// Adds the time of StarPU's own calls to the statistics while profiling, for "microseconds a task
// beyond StarPU's".
struct StarpuTime {
    const bool on = profiling();
    const double start = on ? starpu_timing_now() : 0;
    ~StarpuTime() {
        if (on) mutable_stats().starpu_seconds += (starpu_timing_now() - start) * 1e-6;
    }
};

}  // namespace

static void submit_now(const Task& task);

TemporariesVisible::TemporariesVisible() { temporaries_visible = true; }
TemporariesVisible::~TemporariesVisible() { temporaries_visible = false; }

Tile::Tile(size_t size) : bytes(size), recording(recording_number()) {
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

void drop_handles() {
    for (Tile* tile : registered_tiles()) tile->drop_handle();
    registered_tiles().clear();
}

bool Tile::has_value() const { return handle_ && written_in_ == runtime_number(); }
void Tile::set_written() {
    written_in_ = runtime_number();
    failed_ = false;
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
    for (const Task& task : emitted) submit_now(task);
    first_written.clear();
    emitted.clear();
}

namespace {

// Handles whose values failed tasks were to give. A task that needs one of them is not run, and its
// results fail too; only a change in place (an op that ends in '_') leaves the value that was
// there. So an error in the forward pass reaches no parameter.
struct Failures {
    std::mutex mutex;
    std::unordered_set<starpu_data_handle_t> handles;
    std::atomic<bool> any{false};
};
Failures& failures() {
    static auto* const instance = new Failures;
    return *instance;
}

void note_failure(const TaskArg& arg, bool has_run) {
    const starpu_task* t = starpu_task_get_current();
    const bool keeps = !has_run && arg.op[std::strlen(arg.op) - 1] == '_';
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] == STARPU_W || (t->modes[i] == STARPU_RW && !keeps))
            failures().handles.insert(t->handles[i]);
    failures().any = true;
}

bool needs_failed_value() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] != STARPU_W && failures().handles.count(t->handles[i])) return true;
    return false;
}

// A value that is written anew is good again.
void note_success() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] == STARPU_W) failures().handles.erase(t->handles[i]);
}

void run_on_worker(void* buffers[], const TaskArg& arg, KernelFn fn, void* stream) {
    if (failures().any && needs_failed_value()) return note_failure(arg, false);
    void* operands[max_operands];
    for (int i = 0; i < arg.operands; ++i)
        operands[i] =
            arg.buffer_of[i] < 0
                ? nullptr
                : reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[arg.buffer_of[i]]));
    std::string error;
    const bool timed = profiling();
    const double start = timed ? starpu_timing_now() : 0;
    try {
        fn(KernelCall{operands, arg.params, arg.dtype, stream, &error});
    } catch (const std::exception& e) {
        error = e.what();
    }
    if (timed)
        add_kernel_time(arg.kernel, (starpu_timing_now() - start) * 1e-6, double(arg.flops),
                        double(arg.bytes));
    if (error.empty()) {
        if (failures().any) note_success();
        return;
    }
    note_failure(arg, true);
    report_kernel_error(arg, error);
}

void run_on_cpu(void* buffers[], void* cl_arg) {
    const TaskArg& arg = *static_cast<TaskArg*>(cl_arg);
    run_on_worker(buffers, arg, arg.kernel->cpu, nullptr);
}

#if defined(NN_CUDA) && defined(STARPU_USE_CUDA)
void run_on_cuda(void* buffers[], void* cl_arg) {
    const TaskArg& arg = *static_cast<TaskArg*>(cl_arg);
    run_on_worker(buffers, arg, arg.kernel->cuda, starpu_cuda_get_local_stream());
}
#endif

static_assert(max_operands <= STARPU_NMAXBUFS,
              "StarPU must be configured with --enable-maxbuffers=16");

// One codelet per kernel, all with the same function: the name serves profiles and traces. They
// live for ever, since tasks may outlive anything else.
starpu_codelet* codelet_of(const Kernel* kernel) {
    static auto* const codelets = new std::map<const Kernel*, starpu_codelet*>;
    starpu_codelet*& codelet = (*codelets)[kernel];
    if (codelet) return codelet;
    codelet = static_cast<starpu_codelet*>(std::calloc(1, sizeof(starpu_codelet)));
    starpu_codelet_init(codelet);
    codelet->name = kernel->name.c_str();
    codelet->nbuffers = STARPU_VARIABLE_NBUFFERS;
    if (kernel->cpu) codelet->cpu_funcs[0] = run_on_cpu;
#if defined(NN_CUDA) && defined(STARPU_USE_CUDA)
    if (kernel->cuda) {
        codelet->cuda_funcs[0] = run_on_cuda;
        codelet->cuda_flags[0] = STARPU_CUDA_ASYNC;
    }
#endif
    return codelet;
}

starpu_data_access_mode starpu_mode(Mode mode) {
    return mode == Mode::read ? STARPU_R : mode == Mode::write ? STARPU_W : STARPU_RW;
}

starpu_task* create_task() {
    const StarpuTime time;
    return starpu_task_create();
}

int submit_task(starpu_task* t) {
    const StarpuTime time;
    return starpu_task_submit(t);
}

}  // namespace

void forget_failed_values() {
    Failures& f = failures();
    for (Tile* tile : registered_tiles())
        if (!tile->recording && f.handles.count(tile->handle())) tile->set_failed();
    f.handles.clear();
    f.any = false;
}

void invalidate(Tile& tile) {
    const StarpuTime time;
    starpu_data_invalidate_submit(tile.handle());
}

namespace {

// Bytes that eager tasks in flight write anew. Submission is far ahead of the workers, and a
// scheduler likes to run what was submitted together: without a bound, a loop over temporaries
// would hold all of them at once.
std::atomic<int64_t> eager_bytes{0};
constexpr int64_t eager_limit = int64_t(256) << 20;

void eager_task_done(void* arg) { eager_bytes -= static_cast<TaskArg*>(arg)->fresh_bytes; }

}  // namespace

void submit(const Task& task, TaskArg* arg, bool owned) {
    starpu_task* t = create_task();
    t->cl = codelet_of(task.arg.kernel);
    t->cl_arg = arg;
    t->cl_arg_size = sizeof(TaskArg);
    t->cl_arg_free = owned;
    t->nbuffers = task.handles;
    for (int i = 0; i < task.handles; ++i) {
        t->handles[i] = task.tiles[i]->handle();
        t->modes[i] = starpu_mode(task.modes[i]);
    }
    t->priority = task.priority;
    t->flops = double(task.arg.flops);
    if (task.where) t->where = int32_t(task.where);
    if (arg->fresh_bytes) {
        t->callback_func = eager_task_done;
        t->callback_arg = arg;
    }
    const int status = submit_task(t);
    if (status != 0) {
        eager_bytes -= arg->fresh_bytes;
        t->destroy = 0;
        starpu_task_destroy(t);
        fail("%s: no worker can run kernel %s here (StarPU says %s)", task.arg.op,
             task.arg.kernel->name.c_str(), std::strerror(-status));
    }
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] != Mode::read) task.tiles[i]->set_written();
}

void apply_patches(const Task& task, TaskArg* arg) {
    for (const Patch& patch : task.patches) {
        unsigned char* at = arg->params + patch.offset;
        if (patch.kind == Patch::slot) {
            const double value = slot_value(patch.slot_id);
            std::memcpy(at, &value, sizeof value);
        } else {
            uint64_t key[2];
            std::memcpy(key, at, sizeof key);
            key[0] = random_seed();
            key[1] += random_counter();
            std::memcpy(at, key, sizeof key);
        }
    }
}

// With a copy of the arguments and the present values of its patches.
static void submit_now(const Task& task) {
    start();
    ensure_awake();
    wait_below(8000);
    wait_for([] { return eager_bytes <= eager_limit; });
    TaskArg* arg = static_cast<TaskArg*>(std::malloc(sizeof(TaskArg)));
    *arg = task.arg;
    for (const Patch& patch : task.patches)
        if (patch.kind == Patch::slot) {
            const double value = slot_value(patch.slot_id);
            std::memcpy(arg->params + patch.offset, &value, sizeof value);
        }
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] == Mode::write) arg->fresh_bytes += int64_t(task.tiles[i]->bytes);
    eager_bytes += arg->fresh_bytes;
    submit(task, arg, true);
    ++mutable_stats().tasks;
}

}  // namespace nn
