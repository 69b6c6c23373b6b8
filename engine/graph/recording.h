// Recording: emitted tasks are added to a program instead of being submitted. Only one recording
// can be open: a compiled function called during a recording becomes part of it.
#pragma once
#include <memory>

#include "engine/graph/program.h"

namespace nn {

void begin_recording();
// Ends the recording and runs the passes on the program.
std::shared_ptr<Program> end_recording(std::vector<Tensor> inputs, std::vector<Tensor> outputs);
void abort_recording();
Program* recording_program();      // the program being recorded, or null
void begin_step();                 // see Program::step_begin
void begin_microbatch(int tiles);  // see Program::microbatches

}  // namespace nn
