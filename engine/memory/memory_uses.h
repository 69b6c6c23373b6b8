// Uses of the same memory at the same time, of which one changes it: a fault of the order in which
// tasks and transfers run. Sums of bytes cannot find it: a task that reads what a transfer changes
// meanwhile writes a wrong result with a right sum. For nn.checks "tiles", and only then.
#pragma once
#include <atomic>
#include <cstddef>
#include <string>

namespace nn {

inline std::atomic<bool> checks_tiles{false};

namespace memory_uses {

// User: a task or a transfer, by its address. It may use several places. Any thread.
void begin(const void* user, const void* memory, size_t bytes, bool writes, std::string what);
// Ends all its uses. "", or which use by another user met one of them. Both users get a problem.
std::string end(const void* user);

}  // namespace memory_uses
}  // namespace nn
