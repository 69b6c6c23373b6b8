// Recording: tasks emitted meanwhile become a program instead of being submitted. One at a time: a
// compiled function that is called while another is recorded becomes a part of it.
#pragma once
#include <memory>

#include "engine/graph/program.h"

namespace nn {

void begin_recording();
// Ends the recording and runs the passes on what was recorded.
std::shared_ptr<Program> end_recording(std::vector<Tensor> inputs, std::vector<Tensor> outputs);
void abort_recording();
Program* recording_program();      // the one under way; null where there is none
void begin_step();                 // see Program::step_begin
void begin_microbatch(int tiles);  // see Program::microbatches

}  // namespace nn
