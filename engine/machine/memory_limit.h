// How much memory this process may still take: what the machine has available, within the limits of
// the control groups it is in (containers, batch systems; version 1 and 2 of them). Pages of cached
// files count as free, since the system drops them when memory is short.
#pragma once
#include <cstdint>

namespace nn {

int64_t default_budget();  // 90 % of it, in bytes

}  // namespace nn
