// Which library computes the products of tasks on CPUs: for each shape, the one that was measured
// to be the fastest (kernels/products).
#pragma once
#include <map>
#include <optional>
#include <string>

#include "engine/graph/task.h"
#include "kernels/products/products.h"

namespace nn {

// The widths of a task's product; nothing if it is none, has no choice of its own, or may run on a
// GPU. The same on all ranks.
std::optional<products::Widths> product_widths(const TaskArg& arg);
void set_product_way(TaskArg& arg, products::Way way);
const char* chosen_library(const TaskArg& arg);  // by set_product_way(): "onednn", or ""
// Throws an Error if this rank cannot multiply as rank 0 does.
void need_way_of_first_rank(products::Way way, bool bf16);
// The ways of shapes as text, and their use on another rank.
std::string text_of_ways(const std::map<std::string, products::Way>& ways);
void set_ways_of_first_rank(const std::string& text);

}  // namespace nn
