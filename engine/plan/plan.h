// What a step would take on the described machine, before it runs: seconds, and bytes by kind.
#pragma once
#include "engine/graph/program.h"
#include "engine/plan/measure.h"
#include "engine/plan/simulate.h"

namespace nn {

// The part of a program from Program::step_begin on, with the seconds that tasks take.
SimulatedStep simulated_step(const Program& program, const TaskTimes& times);

// Where task times come from: the nominal rates, measurements made for this program, or what was
// measured before. A machine that is described with rates is always simulated with those.
enum class Times { nominal, measured, known };
SimulationResult plan(const Program& program, Times times, int steps = 3);

}  // namespace nn
