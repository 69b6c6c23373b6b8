// StarPU's settings, most of which are environment variables. What the user has set takes
// precedence.
#pragma once
#include <cstdint>
#include <string>

namespace nn {

void check_scheduler(const std::string& name);  // throws where there is none of that name
std::string default_scheduler(int gpus);
// gpu_memory: bytes that tiles may take on each GPU, 0: not limited; streams: of each GPU, 0: one.
void prepare_environment(int64_t gpu_memory, int streams);

}  // namespace nn
