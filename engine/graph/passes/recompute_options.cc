// The order in which activations are given up: by the bytes times the time for which they need not
// be kept, per second of recomputation.
#include <algorithm>
#include <limits>
#include <map>

#include "engine/graph/cost.h"
#include "engine/graph/passes/recompute.h"

namespace nn {
namespace {

// The effect of recomputing some tiles.
struct Effect {
    int64_t bytes = 0;
    double byte_seconds = 0, seconds = 0;
};

// The candidates of one layer, by module.
struct Block {
    std::vector<RecomputeOption> modules;
};

class Chooser {
public:
    Chooser(const Activations& activations, const Program& program)
        : activations_(activations),
          program_(program),
          seconds_(nominal_seconds(program.tasks)),
          chosen_(activations.tiles().size(), 0),
          seen_(program.tasks.size(), 0) {
        start_.push_back(0);
        for (double seconds : seconds_) start_.push_back(start_.back() + seconds);
        bytes_.resize(chosen_.size());
        for (size_t t = 0; t < program.tasks.size(); ++t)
            for (int i = 0; i < program.tasks[t].handles; ++i)
                bytes_[activations.accesses().begin(uint32_t(t))[i].tile] =
                    int64_t(program.tasks[t].tiles[i]->bytes);
    }

    std::vector<RecomputeOption> options() {
        std::vector<RecomputeOption> out;
        for (Block& block : blocks())
            for (RecomputeOption& option : in_order(std::move(block)))
                out.push_back(std::move(option));
        std::stable_sort(out.begin(), out.end(),
                         [](const auto& a, const auto& b) { return a.value > b.value; });
        return out;
    }

private:
    std::vector<Block> blocks() const {
        std::vector<Block> out;
        std::map<std::string, size_t> block_number;
        std::vector<std::map<std::string, size_t>> module_number;
        for (uint32_t tile = 0; tile < chosen_.size(); ++tile) {
            if (!activations_.is_candidate(tile)) continue;
            const auto& use = activations_.tiles()[tile];
            const auto [block, is_new] =
                block_number.insert({activations_.block_in(use.segment), out.size()});
            if (is_new) out.emplace_back(), module_number.emplace_back();
            auto& modules = out[block->second].modules;
            const std::string layer = program_.tasks[use.writers.back()].arg.layer;
            const auto [module, is_first] =
                module_number[block->second].insert({layer, modules.size()});
            if (is_first) modules.push_back({layer, {}, 0, 0, 0});
            modules[module->second].tiles.push_back(tile);
        }
        return out;
    }

    // The modules of a block, the most valuable first, given those before; none that saves nothing.
    std::vector<RecomputeOption> in_order(Block block) {
        constexpr size_t many = 24;  // modules; a few are compared with each other
        if (block.modules.size() > many) block = merged(block);
        std::vector<RecomputeOption> out;
        std::vector<uint32_t> tiles;  // of the modules in `out`
        Effect before;
        double last_value = std::numeric_limits<double>::infinity();
        while (!block.modules.empty()) {
            size_t best = 0;
            double most = -1;
            Effect effect_of_best;
            for (size_t i = 0; i < block.modules.size(); ++i) {
                const Effect effect = effect_of(tiles, block.modules[i].tiles);
                const double value = (effect.byte_seconds - before.byte_seconds) /
                                     std::max(effect.seconds - before.seconds, 1e-9);
                if (value > most && effect.bytes > before.bytes)
                    best = i, most = value, effect_of_best = effect;
            }
            if (most <= 0) break;
            RecomputeOption option = std::move(block.modules[best]);
            block.modules.erase(block.modules.begin() + long(best));
            option.bytes = effect_of_best.bytes - before.bytes;
            option.seconds = effect_of_best.seconds - before.seconds;
            option.value = last_value = std::min(last_value, most);
            tiles.insert(tiles.end(), option.tiles.begin(), option.tiles.end());
            before = effect_of_best;
            out.push_back(std::move(option));
        }
        return out;
    }

    static Block merged(const Block& block) {
        RecomputeOption all = block.modules.front();
        for (size_t i = 1; i < block.modules.size(); ++i) {
            const auto& tiles = block.modules[i].tiles;
            all.tiles.insert(all.tiles.end(), tiles.begin(), tiles.end());
        }
        return {{std::move(all)}};
    }

    // Of tiles of one block, in two lists.
    Effect effect_of(const std::vector<uint32_t>& first, const std::vector<uint32_t>& second) {
        Effect out;
        Activations::Needed needed;
        for (const auto* tiles : {&first, &second})
            for (uint32_t tile : *tiles) {
                chosen_[tile] = 1;
                out.bytes += bytes_[tile];
                out.byte_seconds += double(bytes_[tile]) * unused_seconds(tile);
            }
        for (const auto* tiles : {&first, &second})
            for (uint32_t tile : *tiles) activations_.add_needed(tile, chosen_, seen_, needed);
        for (uint32_t task : needed.tasks) out.seconds += seconds_[task], seen_[task] = 0;
        std::sort(needed.kept.begin(), needed.kept.end());
        const auto end = std::unique(needed.kept.begin(), needed.kept.end());
        for (auto tile = needed.kept.begin(); tile != end; ++tile) {
            out.bytes -= bytes_[*tile];
            if (!second.empty())
                out.byte_seconds -= double(bytes_[*tile]) * unused_seconds(second.front());
        }
        for (const auto* tiles : {&first, &second})
            for (uint32_t tile : *tiles) chosen_[tile] = 0;
        return out;
    }

    // From the last use before the backward pass to the first use there, if one worker runs all.
    double unused_seconds(uint32_t tile) const {
        const auto& use = activations_.tiles()[tile];
        uint32_t last = use.writers.back();
        for (uint32_t reader : use.readers)
            if (reader < use.backward_reader) last = std::max(last, reader);
        return start_[use.backward_reader] - start_[last + 1];
    }

    const Activations& activations_;
    const Program& program_;
    const std::vector<double> seconds_;  // of each task
    std::vector<double> start_;          // of each task, one after the other
    std::vector<int64_t> bytes_;         // of each tile
    std::vector<char> chosen_, seen_;    // of each tile, of each task; all 0 between calls
};

}  // namespace

Recomputation::Recomputation(Program& program) : activations_(program) {
    if (!program.backwards.empty()) options_ = Chooser(activations_, program).options();
}

std::vector<char> Recomputation::chosen(size_t count) const {
    std::vector<char> out(activations_.tiles().size(), 0);
    for (size_t i = 0; i < count; ++i)
        for (uint32_t tile : options_[i].tiles) out[tile] = 1;
    return out;
}

}  // namespace nn
