#include "engine/rules/tiling.h"

#include <algorithm>
#include <map>

#include "engine/graph/context.h"
#include "engine/machine/description.h"

namespace nn {
namespace {

std::map<std::string, int64_t> tile_sizes;

// For tiles on each GPU; 0 if there are none.
int64_t gpu_bytes() {
    const int gpus = gpus_in_use();
    if (gpus == 0) return 0;
    return settings().gpu_tier >= 0 ? settings().gpu_tier : machine().bytes(NodeKind::gpu) / gpus;
}

// Bytes. A tensor without axis names is cut if it is larger than two of these, into few tiles: a
// product of two such tensors has a task for each pair of tiles. On GPUs with much memory fewer
// weights are cut: attention and gated units need whole rows of a layer's result, so cuts cost
// copies (in a Llama of 7B, 8 % of a step by count). AdamW needs a bf16 weight, its master, moments
// and gradient at once, nine times its bytes; two tiles of 1/512 of the memory take 1/28 of it.
// Sizes are powers of two, so that a description that is about right cuts as the GPU does.
int64_t large_tile() {
    constexpr int64_t least = int64_t(32) << 20;
    const int64_t memory = gpu_bytes();
    int64_t out = least;
    while (out * 2 <= memory / 512) out *= 2;
    return out;
}
int64_t max_large_tiles() { return std::max(12, 2 * machine().count(Device::cpu)); }

constexpr int64_t gpu_tokens = 16384;  // the most of a tile on a GPU

// Vocabularies are cut into the fewest tiles of at most vocab_tile() rows, all but the last of the
// same multiple of vocab_multiple: fast matrix products on GPUs need aligned rows, and sizes that
// are multiples of their blocks. On CPU cores, 2048 rows multiply as fast as 8192, but their logits
// take a quarter of the memory: with RAM for a quarter of the state, GPT-2 124M (8 x 1024 tokens)
// trained at 0.69 of the speed with enough memory with 8192 rows, and at 0.92 with 2048.
int64_t vocab_tile() { return gpus_in_use() > 0 ? 8192 : 2048; }

// On GPUs, cuBLASLt's fast algorithms also need extents that are multiples of 8; so what a
// vocabulary has beyond the last multiple of 128 becomes a tile of its own, unless all of it is a
// multiple of 8.
Cuts cut_vocabulary(int64_t size) {
    constexpr int64_t vocab_multiple = 128;
    const bool has_rest = gpus_in_use() > 0 && size % 8 != 0;
    const int64_t whole = has_rest ? size / vocab_multiple * vocab_multiple : size,
                  tiles = (whole + vocab_tile() - 1) / vocab_tile(),
                  even = (whole + tiles - 1) / tiles;
    Cuts out = cut_every(whole, (even + vocab_multiple - 1) / vocab_multiple * vocab_multiple);
    if (has_rest) out.push_back(size);
    return out;
}

// The tile size of an axis of ids (batch, time). On GPUs, sequences stay whole if there is one for
// each GPU, because cuDNN computes attention only over whole sequences.
int64_t rows_of_ids(const Dims& shape, size_t axis, bool is_batch) {
    const int64_t wanted = tile_size("tokens");
    const int64_t tokens = wanted ? wanted : tokens_per_tile(product(shape));
    if (is_batch) return std::max<int64_t>(1, tokens / product(shape, axis + 1));
    const int gpus = gpus_in_use();
    const bool stays_whole = !wanted && gpus > 0 && product(shape, 0, axis) >= gpus;
    return std::min(stays_whole ? gpu_tokens : tokens, shape[axis]);
}

}  // namespace

// On CPU cores one tile per worker. Two per worker would balance better, but every tile reads all
// weights: measured on two cores with GPT-2 124M and 1024 tokens per step, two tiles of 512 are
// 11 % faster than four of 256. On GPUs one tile per GPU: products of few rows leave a part of the
// GPU idle. On an H200, GPT-2 124M (16 x 1024 tokens) takes 6 % less time a step with one tile than
// with two, and GPT-2 1.5B (8 x 1024) 9 %.
int64_t tokens_per_tile(int64_t tokens) {
    const int64_t tiles = workers_in_use();
    return std::clamp<int64_t>((tokens + tiles - 1) / tiles, 128,
                               gpus_in_use() > 0 ? gpu_tokens : 2048);
}

void set_tile_size(const std::string& axis_name, int64_t size) { tile_sizes[axis_name] = size; }

int64_t tile_size(const std::string& axis_name) {
    const auto it = tile_sizes.find(axis_name);
    return it == tile_sizes.end() ? 0 : it->second;
}

Grid choose_grid(const Dims& shape, Dtype dtype, const std::vector<std::string>& axis_names) {
    Grid grid = Grid::whole(shape);
    const int64_t element = int64_t(dtype_size(dtype));
    bool named = false;
    for (size_t axis = 0; axis < std::min(shape.size(), axis_names.size()); ++axis) {
        const std::string& name = axis_names[axis];
        if (name.empty()) continue;
        named = true;
        if (const int64_t size = tile_size(name)) {
            grid.axes[axis] = cut_every(shape[axis], size);
        } else if (name == "vocab" && shape[axis] > vocab_tile()) {
            grid.axes[axis] = cut_vocabulary(shape[axis]);
        } else if (name == "batch" || name == "time") {  // ids (batch, time): cut by tokens
            grid.axes[axis] = cut_evenly(shape[axis], rows_of_ids(shape, axis, name == "batch"));
        }
    }
    if (!named && !shape.empty() && product(shape) * element > 2 * large_tile()) {
        const int64_t tile = std::max(large_tile(), product(shape) * element / max_large_tiles());
        const int64_t rows = std::max<int64_t>(1, tile / (product(shape, 1) * element));
        grid.axes[0] = cut_evenly(shape[0], rows);
    }
    return grid;
}

}  // namespace nn
