#include "engine/runtime/ranks.h"

#include <nn_version.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/graph/passes/owners.h"
#include "engine/graph/product_ways.h"
#include "engine/machine/description.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/ranks/transport.h"
#include "engine/runtime/rank_transfers.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit.h"
#include "engine/workers/deferred.h"
#include "engine/workers/handles.h"
#include "engine/workers/waits.h"
#include "kernels/products/products.h"

namespace nn {
namespace {

// Products of another library have other last bits, so all ranks use those of rank 0: its choice
// for the machine, and the ways of shapes in its cache. Shapes have ways of their own only if no
// rank has GPUs.
void agree_on_products() {
    products::Choice choice = products::choice();
    const bool has_gpus = host().count(Device::cuda) > 0;
    std::string mine = {char('0' + int(choice.f32)), char('0' + int(choice.bf16)),
                        char('0' + int(choice.by_shape)), char('0' + int(has_gpus)), '\n'};
    std::map<std::string, products::Way> ways;
    if (ranks().rank == 0 && choice.by_shape)
        for (const auto& [name, way] : products::kept_ways())
            if (way < products::ways) ways[name] = products::Way(way);
    mine += text_of_ways(ways);
    const std::vector<std::string> all =
        control::gather("the choice of products", mine, check_interrupt);
    const std::string& first = all[0];
    const products::Choice before = choice;
    choice.f32 = products::Way(first.at(0) - '0'), choice.bf16 = products::Way(first.at(1) - '0');
    choice.by_shape = first.at(2) == '1';
    for (const std::string& text : all) choice.by_shape = choice.by_shape && text.at(3) == '0';
    need_way_of_first_rank(choice.f32, false);
    need_way_of_first_rank(choice.bf16, true);
    if (choice.by_shape) set_ways_of_first_rank(first.substr(5));
    if (choice.f32 != before.f32 || choice.bf16 != before.bf16)
        choice.reason = "as rank 0", choice.f32_gflops = choice.bf16_gflops = 0;
    products::choose(choice);
}

bool is_elsewhere(const Tile& tile, int rank) { return tile.only_owner && tile.owner != rank; }
bool is_elsewhere(const Tile& tile) { return is_elsewhere(tile, ranks().rank); }

// Messages cost more than the memory of smaller tiles, such as biases, and MPI may buffer those.
constexpr size_t most_shared = transport::buffered_bytes;

void check_tiles(const Tensor& tensor, const Tensor& like) {
    if (like.tiles() != tensor.tiles())
        fail("a tensor of %lld tiles cannot have the owners of one of %lld",
             (long long)tensor.tiles(), (long long)like.tiles());
}

void drop(Tile& tile) {
    finish_deferred_on(tile);
    if (tile.has_value()) forget_storage(tile);
    tile.value = Tile::Value::remote;
}

}  // namespace

int64_t next_series() {
    static int64_t count = 0;
    return count++ << 32;
}

void start_ranks(const std::string& work) {
    take_share_of_cores();
    transport::open();
    control::start({{"version of nnlua", NN_VERSION " " NN_VERSION_GIT},
                    {"script and arguments", work},
                    {"kernels", cpu_target().name}});
    agree_on_products();
}

void finish_ranks() {
    control::finish();
    transport::finish();
}

void drop_kept_elsewhere(const Program& program) {
    for (const TilePtr& tile : program.kept_elsewhere) drop(*tile);
}

void keep_on_owners(const Tensor& tensor, const Tensor* like) {
    const int ranks = recording_number() ? machine().ranks : nn::ranks().count;
    if (ranks == 1) return;
    if (like) check_tiles(tensor, *like);
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        Tile& tile = *tensor.tile(i);
        if (like ? !like->tile(i)->only_owner : tile.bytes <= most_shared) continue;
        const int owner = like ? like->tile(i)->owner : owner_of_new(tile.bytes, ranks);
        tile.keep_on(owner, owner == nn::ranks().rank);
        if (!recording_number() && is_elsewhere(tile)) drop(tile);
    }
}

void move_to_owners(const Tensor& tensor, const Tensor& like) {
    if (recording_number()) return keep_on_owners(tensor, &like);
    if (!ranks().several()) return;
    const int me = ranks().rank;
    const int64_t first_tag = next_series();
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        Tile& tile = *tensor.tile(i);
        if (!tile.only_owner) continue;
        check_tiles(tensor, like);
        const Tile& target = *like.tile(i);
        const int from = tile.owner;
        ensure_awake();
        for (int rank = 0; rank < ranks().count; ++rank) {
            if (rank == from || (target.only_owner && rank != target.owner)) continue;
            const int64_t tag = first_tag + i * ranks().count + rank;
            if (me == from) send_tile(tile, rank, tag);
            if (me == rank) receive_tile(tile, from, tag);
        }
        if (!target.only_owner) {
            tile.keep_on_all();
            continue;
        }
        tile.keep_on(target.owner, me == target.owner);
        if (is_elsewhere(tile)) drop(tile);
    }
}

bool collect(const Tensor& tensor) {
    const auto tiles = std::views::iota(int64_t(0), tensor.tiles());
    if (std::ranges::none_of(tiles, [&](int64_t i) { return is_elsewhere(*tensor.tile(i), 0); }))
        return false;
    ensure_awake();
    const int64_t first_tag = next_series();
    for (int64_t i : tiles) {
        Tile& tile = *tensor.tile(i);
        if (!is_elsewhere(tile, 0)) continue;
        if (ranks().rank == 0)
            receive_tile(tile, tile.owner, first_tag + i);
        else if (ranks().rank == tile.owner)
            send_tile(tile, 0, first_tag + i);
    }
    return true;
}

void drop_collected(const Tensor& tensor) {
    for (int64_t i = 0; i < tensor.tiles(); ++i)
        if (Tile& tile = *tensor.tile(i); is_elsewhere(tile)) drop(tile);
}

void spread(const Tensor& tensor) {
    if (!ranks().several()) return;
    start();
    ensure_awake();
    const int64_t first_tag = next_series();
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        Tile& tile = *tensor.tile(i);
        if (ranks().rank > 0 && !is_elsewhere(tile)) receive_tile(tile, 0, first_tag + i);
        if (ranks().rank > 0) continue;
        for (int rank = 1; rank < ranks().count; ++rank)
            if (!is_elsewhere(tile, rank)) send_tile(tile, rank, first_tag + i);
    }
    drop_collected(tensor);
}

}  // namespace nn
