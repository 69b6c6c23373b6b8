// The layer at work: the module that emits a task, as a path such as "blocks.3.mlp". Profiles and
// traces name tasks by it.
#pragma once
#include <cstdint>
#include <string>

namespace nn {

int32_t layer_id(const std::string& name);  // 0 for ""; the same number for the same name
const char* current_layer();                // lives for ever
int32_t set_layer(int32_t id);              // returns the one before

}  // namespace nn
