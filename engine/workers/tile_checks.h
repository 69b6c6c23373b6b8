// Checks that every value of a tile is read as it was written: nn.checks "tiles", or
// NNLUA_CHECKS=tiles in the environment. The order of submission says which value each task,
// transfer and copy reads. A place (a StarPU handle, a slot, an extent) remembers which value it
// contains, and its CRC-32. A reader that finds another value or other bytes is an error. So are
// two uses of the same memory at the same time, of which one writes. Without the checks, nothing is
// counted or summed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/memory/memory_uses.h"
#include "engine/workers/handles.h"

struct starpu_task;

namespace nn::tile_checks {

inline bool on() { return checks_tiles.load(std::memory_order_relaxed); }

// A value: a tile, and the number of the write, which is unique. Write 0 is from before the checks;
// it is not checked.
struct Value {
    uint64_t tile = 0, write = 0;
};
inline Value value_of(const Tile& tile) { return on() ? Value{tile.number, tile.write} : Value{}; }
Value next_value(Tile& tile);  // that the next write gives to the tile; main thread

// Slots and other memory that several handles share. gpu: CUDA's number; -1 for RAM.
void note_memory(StarpuHandle handle, const void* memory, int gpu);
void end_handle(StarpuHandle handle);

// Bytes where they are.
struct Bytes {
    const void* memory;
    size_t count;
    int gpu = -1;
};
// For copies, and for transfers when they end, on any thread. "" if the place has this value and
// these are its bytes, else a problem. A load has the place that it reads and the bytes that came.
std::string problem(StarpuHandle place, Value value, const Bytes& bytes);
// As problem(), throws Error.
void need(StarpuHandle place, Value value, const Bytes& bytes);
// The place has a value now, by an op, "load", "store", ...
void note(StarpuHandle place, Value value, const Bytes& bytes, const char* by);
// The same as another place.
void note_same(StarpuHandle place, StarpuHandle as, const char* by);
// The sum that a place should have, to send it beside the value; false: unknown.
bool sum_of(StarpuHandle place, Value value, uint32_t* sum);
uint32_t sum_of(const Bytes& bytes);
int gpu_of(StarpuHandle place);  // of its memory, as above

// What a task reads and writes, by its buffers; before it is submitted, on the main thread.
struct Operand {
    Value before, after;  // after: only of what the task writes
    size_t bytes = 0;     // of the tile, which a slot may exceed
};
void expect(const starpu_task* task, std::vector<Operand> operands);
// The rest is for the task that runs on the calling worker. A problem of what it reads, or "".
std::string problem_before_task(const char* op);
// The task has ended without an error. Throws Error if something else used its tiles meanwhile.
void note_results(const char* op);
void note_kept();    // it was skipped, and what it changes in place keeps the value before
void forget_task();  // it has failed

}  // namespace nn::tile_checks
