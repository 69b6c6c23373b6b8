#pragma once
#include "engine/graph/program.h"

namespace nn {

// Whether a prepared program runs by a plan of its memory (tiers/plan.h): it does not fit into RAM,
// or uses tiles that earlier plans have placed.
bool needs_plan(Program& program);
// Whether it uses such tiles. It then needs a plan even if it fits, as long as slots exist.
bool uses_homes(Program& program);

}  // namespace nn
