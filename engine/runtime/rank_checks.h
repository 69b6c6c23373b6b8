// With nn.checks "tiles" (workers/tile_checks.h), a second message beside each tile that ranks send
// has the checksum that the tile should have. Main thread only.
#pragma once
#include "engine/workers/tile_checks.h"

namespace nn::rank_checks {

// Before a tile is sent, and after it is received, both as tasks. value: that of the tile; tag: of
// its message.
void send_sum(StarpuHandle tile, tile_checks::Value value, int to, int64_t tag);
void check_received(StarpuHandle tile, tile_checks::Value value, int from, int64_t tag);
void stop();  // at the end of the session

}  // namespace nn::rank_checks
