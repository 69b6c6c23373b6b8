// Access to the value of a tile in host memory, from the main thread.
#pragma once
#include "engine/tile/tile.h"

namespace nn {

// Wait until the value is there, or may be written, call use(data, context), and let go of it.
void wait_readable(Tile& tile, void (*use)(void* data, void* context), void* context);
void wait_writable(Tile& tile, void (*use)(void* data, void* context), void* context);

}  // namespace nn
