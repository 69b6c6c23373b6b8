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
// See Program::loops. First the tasks of single iterations are recorded, then those that all have:
// twice, each time from begin_body(), because only what does the same again can be repeated.
void begin_loop(int iterations);
void set_iteration(int iteration);  // of the following tasks, from 0
void begin_body();
// repeats: false if the body would do something else the next time. Returns the number of
// iterations that are recorded: all, or the first two, as tasks that run once, if the two bodies
// differ.
int end_loop(bool repeats);
// See Program::backwards. A call inside another one belongs to it.
void begin_backward();
void end_backward();

}  // namespace nn
