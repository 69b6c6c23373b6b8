// The stacks of all threads of this process, for the report of ranks that stand still.
#pragma once
#include <string>

namespace nn {

// Each thread by its name, then a line for each function; takes at most about 5 seconds. SIGTRAP
// interrupts the system calls of the other threads. Call it from one thread at a time.
std::string stacks_of_threads();

}  // namespace nn
