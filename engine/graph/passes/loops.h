// Cuts of loops (Program::loops): iterations before and after a loop as tasks of their own, and
// several iterations in one body. The results are the same to the bit.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "engine/graph/program.h"

namespace nn {

struct LoopCut {
    uint32_t head = 0;    // the first iterations, before the loop
    uint32_t copies = 0;  // iterations in the new body
    uint32_t tail = 0;    // the last iterations, after the loop
};
// `copies` must divide the number of iterations between head and tail; if it is 0, no loop remains.
// Copies of the body work on tiles of their own, so that they can run at the same time.
// share_tiles: those of the head and the tail use the tiles of the copies in the loop.
void cut_loop(Program& program, size_t loop, const LoopCut& cut, bool share_tiles = false);
void expand_loop(Program& program, size_t loop);
// A copy of a prepared program whose only loop is cut; without loops if `copies` is 0. seconds: of
// its tasks, for Program::seconds.
std::unique_ptr<Program> cut_copy(const Program& program, const std::vector<double>& seconds,
                                  const LoopCut& cut);

// The temporaries that each iteration of a loop writes before it reads them: no value passes
// through them from one iteration to the next.
std::unordered_set<const Tile*> private_tiles(const Program& program, const Program::Loop& loop);

// How often each task runs in a run of the program.
std::vector<uint32_t> runs_of_tasks(const Program& program);

// A tile with the properties of another one, for a copy of the tasks that use it.
TilePtr fresh_tile(const Tile& like, uint32_t recording);

}  // namespace nn
