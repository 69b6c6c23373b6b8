// Which library computes the products of tasks on CPUs: for each shape, the one that was measured
// to be the fastest (kernels/products).
#pragma once
#include <optional>

#include "engine/graph/task.h"
#include "kernels/products/products.h"

namespace nn {

// The widths of a task's product; nothing if it is none, or has no choice of its own.
std::optional<products::Widths> product_widths(const TaskArg& arg);
void set_product_way(TaskArg& arg, products::Way way);
// Throws an Error if this rank cannot multiply as rank 0 does.
void need_way_of_first_rank(products::Way way, bool bf16);

}  // namespace nn
