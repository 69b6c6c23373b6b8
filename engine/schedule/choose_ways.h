#pragma once
#include "engine/graph/program.h"

namespace nn {

// Chooses which library computes each product of a program (graph/product_ways.h). Measures shapes
// that are new to this machine. With several ranks, rank 0 does so for all.
void choose_product_ways(Program& program);

}  // namespace nn
