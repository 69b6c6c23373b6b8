// Builds a task and emits it: task("gemm", dtype).use(...).params(p).emit(tile, extent);
#pragma once
#include <initializer_list>

#include "engine/graph/task.h"
#include "engine/tile/tensor.h"

namespace nn {

struct Use {
    TilePtr tile;  // null for an absent optional operand
    Mode mode;
};
inline Use reads(TilePtr tile) { return {std::move(tile), Mode::read}; }
inline Use writes(TilePtr tile) { return {std::move(tile), Mode::write}; }
inline Use updates(TilePtr tile) { return {std::move(tile), Mode::read_write}; }
inline Use absent() { return {nullptr, Mode::read}; }
// Operands of a task: a tile of a tensor, which may be absent.
inline Use reads(const Tensor& t, int64_t i) { return t ? reads(t.tile(i)) : absent(); }
inline Use writes(const Tensor& t, int64_t i) { return t ? writes(t.tile(i)) : absent(); }
inline Use updates(const Tensor& t, int64_t i) { return t ? updates(t.tile(i)) : absent(); }
// A tile to which several tasks add: the first one writes it.
inline Use adds(const Tensor& t, int64_t i, bool first) {
    return first ? writes(t, i) : updates(t, i);
}

class TaskBuilder {
public:
    TaskBuilder(const char* kernel, Dtype dtype);
    TaskBuilder& use(const Use& use);
    TaskBuilder& use(std::initializer_list<Use> uses);
    // Without what stands between the fields, so that equal params are equal bytes.
    template <class P> TaskBuilder& params(P params) {
        static_assert(sizeof(P) <= max_params);
        __builtin_clear_padding(&params);
        return raw_params(&params, sizeof(P));
    }
    TaskBuilder& raw_params(const void* params, size_t bytes);
    TaskBuilder& patch(const std::vector<Patch>& patches) {
        task_.patches.insert(task_.patches.end(), patches.begin(), patches.end());
        return *this;
    }
    TaskBuilder& flops(double count) { return task_.arg.flops = float(count), *this; }
    // The bytes that the kernel reads and writes. Call it after use(), which counts each tile once,
    // or twice if it is read and written.
    TaskBuilder& bytes(double count) { return task_.arg.bytes = float(count), *this; }
    TaskBuilder& priority(int value) { return task_.priority = value, *this; }
    TaskBuilder& where(Where where) { return task_.where = where, *this; }
    TaskBuilder& splits(bool splits) { return task_.splits = splits, *this; }
    void emit();
    // Emits it as the task of this tile of the op's result, with so many FLOPs per element.
    void emit(int64_t tile, const Dims& extent, double element_flops = 0);

private:
    Task task_;
};
inline TaskBuilder task(const char* kernel, Dtype dtype) { return TaskBuilder(kernel, dtype); }

// While one exists, tasks outside a recording may access a program's temporaries, to copy inputs
// and outputs.
struct TemporariesVisible {
    TemporariesVisible();
    ~TemporariesVisible();
};

}  // namespace nn
