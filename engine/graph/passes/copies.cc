#include "engine/graph/passes/copies.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace nn {
namespace {

constexpr uint32_t no_tile = UINT32_MAX;
constexpr size_t never = std::numeric_limits<size_t>::max();

}  // namespace

void Copies::add(const Use& use) {
    uses_[use.tile].push_back(use.task);
    auto& tiles = in_layer_[{use.layer, use.bytes}];
    if (std::ranges::find(tiles, use.tile) == tiles.end()) tiles.push_back(use.tile);
    size_t& most = most_in_layer_[use.bytes];
    most = std::max(most, tiles.size());
}

size_t Copies::next_use(uint32_t tile, size_t after) const {
    const auto at = uses_.find(tile);
    if (at == uses_.end()) return never;
    const auto next = std::ranges::upper_bound(at->second, after);
    return next == at->second.end() ? never : *next;
}

// A layer computes while the next one is received, so there are buffers for the tiles of two
// layers. The copy whose next use is latest makes room; of several, the least recently used, whose
// buffer is free first.
Copies::Buffer& Copies::buffer_for(size_t bytes, size_t task, uint32_t recording) {
    size_t count = 0;
    Buffer* best = nullptr;
    const auto order_of = [&](const Buffer& b) {
        return std::tuple(next_use(b.tile, task), never - b.last_task);
    };
    for (Buffer& b : buffers_) {
        if (b.bytes != bytes) continue;
        ++count;
        if (b.last_task != task && (!best || order_of(b) > order_of(*best))) best = &b;
    }
    const bool is_full = count >= 2 * most_in_layer_[bytes];
    if (best && (is_full || best->tile == no_tile)) return *best;
    buffers_.push_back({bytes, no_tile, task, nullptr});
    if (recording) {
        const InRecording buffers_are_temporaries(recording);
        buffers_.back().memory = std::make_shared<Tile>(bytes);
    }
    return buffers_.back();
}

Copies::Copy Copies::copy_for(uint32_t tile, size_t task, size_t bytes, uint32_t recording) {
    const auto found = std::ranges::find(buffers_, tile, &Buffer::tile);
    Buffer& buffer = found != buffers_.end() ? *found : buffer_for(bytes, task, recording);
    const bool is_new = buffer.tile != tile;
    buffer.tile = tile, buffer.last_task = task;
    return {buffer.memory, is_new};
}

void Copies::forget(uint32_t tile) {
    const auto found = std::ranges::find(buffers_, tile, &Buffer::tile);
    if (found != buffers_.end()) found->tile = no_tile;
}

}  // namespace nn
