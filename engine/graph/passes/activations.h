// The activations of a program: temporaries that tasks before a backward pass write and that the
// backward pass reads. Finds those that can be computed again, and with which tasks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/graph/program.h"

namespace nn {

class Activations {
public:
    static constexpr uint32_t none = UINT32_MAX;

    struct TileUse {
        std::vector<uint32_t> writers, readers;  // tasks; one that does both is a writer
        uint32_t segment = none;          // whose tasks write it; none: no or several segments
        uint32_t backward_reader = none;  // the first one
        // Tasks of another segment read it before the backward pass.
        bool enters = false;
        bool can_run_again = false;  // all tasks that write it
        // No product is needed to compute it again.
        bool cheap = false;
        bool is_activation() const { return backward_reader != none; }
    };

    // program: before microbatches are ordered. Its tasks are read until the construction ends.
    explicit Activations(Program& program);

    const Accesses& accesses() const { return accesses_; }
    const std::vector<TileUse>& tiles() const { return tiles_; }
    // Of a task before a backward pass: its segment, a sequence of tasks of the same layer.
    uint32_t segment_of(uint32_t task) const { return segment_[task]; }
    // The first task of the backward pass that follows a segment.
    uint32_t backward_of(uint32_t segment) const { return parts_[part_[segment]].backward; }
    // The block of its layer (graph/layer.h).
    const std::string& block_in(uint32_t segment) const { return blocks_[segment]; }
    // Whether a tile may be chosen for recomputation.
    bool is_candidate(uint32_t tile) const;

    // Whether a task that runs again reads a new value of the tile. chosen: a flag for each tile.
    bool is_new(uint32_t task, uint32_t tile, const std::vector<char>& chosen) const;

    // The tasks that must run again for some tiles, and the tiles that must be kept for these tasks
    // although the backward pass does not read them.
    struct Needed {
        std::vector<uint32_t> tasks, kept;
    };
    // Adds what the tile needs. seen: a flag for each task that is in `needed` or has run again.
    void add_needed(uint32_t tile, const std::vector<char>& chosen, std::vector<char>& seen,
                    Needed& needed) const;

private:
    struct Part {  // the tasks before a backward pass, and the pass
        uint32_t begin, backward, end;
    };
    void find_tiles(const Program& program);
    void find_segments(const Program& program);
    void find_uses();
    void find_repeatable(const Program& program);
    bool can_run_again(const Program& program, uint32_t task, const std::vector<char>& repeats);
    bool is_cheap(const Program& program, uint32_t task, const std::vector<char>& cheap) const;
    bool is_written_between(uint32_t tile, uint32_t after, uint32_t before) const;
    const Part* part_of_task(uint32_t task) const;

    const Accesses accesses_;  // of the tasks
    std::vector<TileUse> tiles_;
    std::vector<Part> parts_;
    std::vector<uint32_t> segment_;    // of each task
    std::vector<uint32_t> part_;       // of each segment
    std::vector<std::string> blocks_;  // of each segment
    std::vector<char> is_temporary_;   // of each tile: of the step, neither input nor output
};

}  // namespace nn
