// A task: one kernel on a few tiles. Ops emit tasks; what becomes of them (run now, or kept in a
// program) is decided in one place, emit(). Every kernel runs through one generic codelet.
#pragma once
#include <cstring>
#include <initializer_list>
#include <memory>
#include <unordered_set>
#include <vector>

#include "engine/shape.h"
#include "kernels/kernel.h"

struct _starpu_data_state;

namespace nn {

constexpr int max_operands = 16;  // StarPU is built with --enable-maxbuffers=16
constexpr size_t max_params = 384;

// A contiguous row-major block of one dtype behind one StarPU handle. The handle is registered at
// the first submission and its memory allocated at the first write, so that planning a model costs
// nothing. Main thread only.
class Tile {
public:
    explicit Tile(size_t bytes);
    ~Tile();
    Tile(const Tile&) = delete;
    Tile& operator=(const Tile&) = delete;

    _starpu_data_state* handle();
    void drop_handle();  // and the value, which ends with the runtime

    // A value exists from the submission of the first task that writes it. A recorded task writes
    // nothing yet: later tasks of recordings may count on it, others may not.
    bool has_value() const;
    void set_written();
    uint32_t written_in() const { return written_in_; }
    void set_written_in(uint32_t runtime) { written_in_ = runtime; }
    void set_failed() { written_in_ = 0, failed_ = true; }
    void set_recorded() { recorded_ = true; }
    void check_readable(const char* op) const;  // throws where there is nothing to read
    bool is_valid_at(int place) const;          // whether a memory node of StarPU holds the value

    const size_t bytes;
    const uint64_t number;  // of no other tile
    const uint32_t
        recording;         // number of the recording it is a temporary of, 0 for one that persists
    uint8_t kind = 0;      // for plans: a TileKind (engine/plan.h)
    uint32_t version = 0;  // counts changes in place; a view remembers the version it was made at

private:
    _starpu_data_state* handle_ = nullptr;
    uint32_t written_in_ = 0;  // number of the runtime that has the value, 0 before the first
    bool recorded_ = false, failed_ = false;
};
using TilePtr = std::shared_ptr<Tile>;

struct Use {
    TilePtr tile;  // null for an absent optional operand
    Mode mode;
};
inline Use reads(TilePtr tile) { return {std::move(tile), Mode::read}; }
inline Use writes(TilePtr tile) { return {std::move(tile), Mode::write}; }
inline Use updates(TilePtr tile) { return {std::move(tile), Mode::read_write}; }
inline Use absent() { return {nullptr, Mode::read}; }

// What the worker gets: plain data, so that StarPU may free it.
struct TaskArg {
    const Kernel* kernel;
    const char* op;       // the op that emitted it, for errors
    const char* layer;    // the module that did, for profiles: "blocks.3.mlp", or ""
    float flops, bytes;   // for profiles
    int64_t fresh_bytes;  // of an eager task: what it writes anew
    bool in_place;        // the op changes an input, which keeps its value if the task does not run
    bool helped;          // of a program whose tasks other workers help with
    Dtype dtype;
    uint8_t operands;
    int8_t buffer_of[max_operands];  // operand -> StarPU buffer; -1 when absent
    int32_t tile, rank;              // which tile of the op's result, and its extents, for errors
    int32_t extent[max_dims];
    alignas(16) unsigned char params[max_params];
};

// A number in the params that is filled in at submission, not at recording.
struct Patch {
    enum Kind {
        slot,
        random_key
    } kind;  // random_key: a seed, which is set, and the counter behind it, which is moved on
    int32_t offset;  // in the params
    int32_t slot_id;
};

struct Task {
    TaskArg arg;
    uint8_t handles = 0;
    TilePtr tiles[max_operands];  // distinct, with the accesses of all operands on each merged
    Mode modes[max_operands];
    int32_t priority = 0;
    std::vector<Patch> patches;
    uint32_t where = 0;   // 0: anywhere, else STARPU_CPU or STARPU_CUDA
    bool splits = false;  // the kernel can split it among workers that help (kernels/team.h)
};

// How an op emits: task("gemm", dtype).use(...).params(p).flops(f).emit();
class TaskBuilder {
public:
    TaskBuilder(const char* kernel, Dtype dtype);
    TaskBuilder& use(const Use& use);
    TaskBuilder& use(std::initializer_list<Use> uses);
    template <class P> TaskBuilder& params(const P& params) {
        static_assert(sizeof(P) <= max_params);
        return raw_params(&params, sizeof(P));
    }
    TaskBuilder& raw_params(const void* params, size_t bytes);
    TaskBuilder& flops(double count);
    TaskBuilder& tile(int64_t number, const Dims& extent);
    TaskBuilder& patch(const std::vector<Patch>& patches);
    TaskBuilder& priority(int value);
    TaskBuilder& where(uint32_t where);
    TaskBuilder& splits(bool splits);
    void emit();

private:
    Task task_;
};

// Eager tasks emitted while one exists wait in it until submit(), so that an op which fails
// half-way has changed nothing, and one that ran out of memory can be tried again.
class Emission {
public:
    Emission();
    ~Emission();
    Emission(const Emission&) = delete;
    void submit();
};
inline TaskBuilder task(const char* kernel, Dtype dtype) { return TaskBuilder(kernel, dtype); }

// Submits to StarPU; `arg` must outlive the task when it is not owned (malloc'd and then freed by
// StarPU).
void submit(const Task& task, TaskArg* arg, bool owned);
// The `tasks` submitted next have `helped` in their arguments. Once they are submitted, which takes
// a core's time too, submit_helpers() makes all workers but one help until the last of them has
// run.
void expect_helped(int64_t tasks);
void submit_helpers();
void submit_now(const Task& task);  // eager: with a copy of the arguments, patches filled in
void apply_patches(const Task& task, TaskArg* arg);
void drop_handles();  // of all tiles that exist: part of shutdown
// Tiles lose the values that failed tasks, or tasks that needed these, were to give them. To be
// called when no task is left.
void forget_failed_values();
void forget_values(const std::unordered_set<_starpu_data_state*>& failed);  // of these handles
bool has_failed_value(_starpu_data_state* handle);                          // on any thread
void invalidate(Tile& tile);  // its value is needed no more: StarPU gives the memory back after the
                              // last task that uses it

// While one exists, tasks outside a recording may touch a program's temporaries: how inputs get in
// and outputs out.
struct TemporariesVisible {
    TemporariesVisible();
    ~TemporariesVisible();
};

}  // namespace nn
