// The memory that this process can still allocate: the machine's available memory, within the
// limits of its control groups (containers, batch systems; version 1 and 2). Cached pages of files
// count as free, since the system evicts them when memory is short.
#pragma once
#include <cstdint>

namespace nn {

int64_t default_budget();  // 90 % of that memory, in bytes

}  // namespace nn
