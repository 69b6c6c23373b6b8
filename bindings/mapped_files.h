// Mapped files that shrink, or whose disk fails, while they are read: Linux then sends SIGBUS.
// The handler here puts zeros in the place of the missing pages and marks the mapping, so that its
// reader can raise an error (lua/nn/io/files.lua). Any thread may read; the main thread watches.
#pragma once
#include <cstddef>
#include <cstdint>

namespace nn {

void install_bus_handler();
void watch_mapping(uintptr_t first, size_t bytes);
void unwatch_mapping(uintptr_t first);
bool mapping_is_damaged(uintptr_t first);

}  // namespace nn
