// Chooses which activations a recorded program recomputes instead of keeping them.
#pragma once
#include "engine/graph/program.h"

namespace nn {

enum class Activation : uint8_t {
    keep,       // until the backward pass
    recompute,  // all of them
    choose      // as few as possible, so that the program fits into memory
};
// Whether all ranks make each plan, so that it has the choice of rank 0, as a run has; else each
// rank chooses in its own plans.
void plan_together(bool together);
void set_activations(Activation choice);  // of programs that are recorded from now on

// Changes the program according to the setting, as rank 0 does if ranks share it. place_trial: what
// follows (pipeline.cc). A program whose memory is planned (tiers/plan.h) takes what is faster.
void choose_activations(Program& program, void (*place_trial)(Program&));

}  // namespace nn
