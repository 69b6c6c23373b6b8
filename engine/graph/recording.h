// Recording: emitted tasks are added to a program instead of being submitted. Only one recording
// can be open: a compiled function called during a recording becomes part of it.
#pragma once
#include <memory>

#include "engine/graph/program.h"

namespace nn {

void begin_recording();
// Ends the recording and returns it as it is: prepare() (schedule/pipeline.h) makes it ready to
// run.
std::shared_ptr<Program> end_recording(std::vector<Tensor> inputs, std::vector<Tensor> outputs);
void abort_recording();
Program* recording_program();  // the program being recorded, or null
// Makes the recording a plan of the tasks that follow. What the tasks so far created exists before
// its run, also `lasting` (Program::lasting), and the plan forgets these tasks.
void begin_planned_step(std::vector<Tensor> lasting);
void begin_microbatch(int tiles);  // see Program::microbatches
// The following tasks belong to this shard of so many, until the next call; -1: to none.
void set_shard(int shard, int shards);
// See Program::loops. The tasks up to the next set_iteration() belong to this iteration only, from
// 0; -1: to all.
void begin_loop(int iterations);
void set_iteration(int iteration);
void end_loop();
// See Program::backwards. A call inside another one belongs to it.
void begin_backward();
void end_backward();

}  // namespace nn
