// The memory nodes of the running session, RAM first, then the GPUs': what they hold, and the bytes
// moved between them.
#pragma once
#include <cstdint>
#include <string>

namespace nn {

int memory_nodes();               // 1 until the session runs
std::string node_name(int node);  // "RAM", "GPU 0"
struct NodeMemory {
    int64_t used, limit;  // bytes; memory kept for reuse counts as used
};
NodeMemory node_memory(int node);
int64_t bytes_moved();  // between nodes, so far

}  // namespace nn
