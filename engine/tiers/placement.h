// The placement of a program in memory that is smaller than its tiles: where each large tile is
// between two tasks, in a slot or in the store, and the transfers between them. It is made before
// the program runs, from the complete list of accesses, so the next use of every tile is known.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/dependencies.h"

namespace nn {

// Slots are parts of one range of memory. They begin at multiples of a block and have multiples of
// it as sizes, so that the disk can read and write them without copies.
constexpr int64_t slot_block = 4096;
constexpr uint32_t no_slot = UINT32_MAX;
// The blocks of a slot for a tile. Similar sizes are rounded to the same number.
uint32_t slot_blocks(int64_t bytes);

// What has to be placed. Tiles have the numbers of `accesses`.
struct Line {
    struct LineTile {
        uint32_t blocks = 0;  // 0: the tile is not placed, because it is small or an output
        bool before = false;  // it has a value before the run
        bool after = false;   // its value is needed after the run
    };
    Accesses accesses;
    std::vector<LineTile> tiles;
    // When workers run each task, in seconds, if none waits for a transfer. Both never fall: no
    // later task begins before begins[t], and no earlier one ends after ends[t].
    std::vector<double> begins, ends;
    double seconds = 0;  // of a run
    // A task without accesses where one run ends and the next one begins (ProgramLines::seam()).
    uint32_t cut = UINT32_MAX;

    bool is_placed(uint32_t tile) const { return tiles[tile].blocks > 0; }
    int64_t bytes_of(uint32_t tile) const { return tiles[tile].blocks * slot_block; }
    // seconds: of each task.
    void set_times(const std::vector<double>& seconds, int workers);
};

// By tile: the first block of its slot, or no_slot: in the store, or without a value.
using Layout = std::vector<uint32_t>;

// Where tiles are before and after a run.
struct LineEnds {
    Layout before, after;
};

struct Placement {
    enum Kind : uint8_t {
        run,   // a task
        load,  // a tile from the store into a slot
        store  // a tile from a slot to the store
    };
    struct Step {
        Kind kind;
        uint32_t index;  // of the task, or of the tile
        uint32_t slot;   // of the tile: its first block
        uint32_t due;    // of a transfer: the number of tasks before which it should be done
    };
    uint32_t blocks = 0;  // of memory
    std::vector<Step> steps;
    std::vector<uint32_t> slots;     // of every access of the line, no_slot if it is not placed
    Layout first, last;              // before and after the run
    Layout at_cut;                   // of the line; empty if it has none
    int64_t loaded = 0, stored = 0;  // bytes
};

class Retention;
struct PlaceOptions {
    double share = 1;  // of the memory that tiles take between their uses; see Retention
    // Seconds from the beginning of a load to the use of the tile, and from the last use of a tile
    // to the end of its store; less where other tiles need the slot.
    double lead = 0;
};
// Some tiles leave memory although the retention keeps them, if the slots do not fit otherwise.
// Returns nothing if a task needs more memory than there is, or if ends are given that do not leave
// it enough. With a share of 0, nothing stays in memory between two uses.
std::optional<Placement> place(const Line& line, uint32_t blocks, const Retention& retention,
                               const PlaceOptions& options, const LineEnds* ends);

// Bytes that a run of a line moves if the tiles that were not used for the longest time leave
// memory, whatever their next use.
struct TransferBytes {
    int64_t loaded = 0, stored = 0;
};
TransferBytes lru_transfers(const Line& line, uint32_t blocks);

// Walks the finished placement independently of place(). Returns what is wrong with it, or "".
std::string check_placement(const Line& line, const Placement& placement);
// The same for a run of `second` that follows one of `first`; both number the tiles alike.
std::string check_succession(const Line& first_line, const Placement& first,
                             const Line& second_line, const Placement& second);

}  // namespace nn
