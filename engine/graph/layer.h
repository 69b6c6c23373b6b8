// The parts of a model, by the paths of its layers (TaskArg::layer).
#pragma once
#include <string>
#include <string_view>

namespace nn {

// "body.blocks.3" of "body.blocks.3.mlp": the tasks of an element of a list are near each other in
// time. A layer that is in no list is a block of its own.
std::string block_of(std::string_view layer);

}  // namespace nn
