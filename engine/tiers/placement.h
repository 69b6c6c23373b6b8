// The placement of a program in memory that is smaller than its tiles: where each large tile is
// between two tasks, in a slot or on disk, and the transfers between them. It is made before the
// program runs, from the complete list of accesses, so the next use of every tile is known.
#pragma once
#include <cstdint>
#include <memory>
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
    std::vector<double> starts;  // of each task, in seconds, if no task waits for a transfer
    double seconds = 0;          // of a run

    bool is_placed(uint32_t tile) const { return tiles[tile].blocks > 0; }
    int64_t bytes_of(uint32_t tile) const { return tiles[tile].blocks * slot_block; }
    double end_of(uint32_t task) const {
        return task + 1 < starts.size() ? starts[task + 1] : seconds;
    }
};

// By tile: the first block of its slot, or no_slot: on disk, or without a value.
using Layout = std::vector<uint32_t>;

// Where tiles are before and after a run.
struct LineEnds {
    Layout before, after;
};

struct Placement {
    enum Kind : uint8_t {
        run,   // a task
        load,  // a tile from disk into a slot
        store  // a tile from a slot to disk
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
    int64_t loaded = 0, stored = 0;  // bytes
};

// A line whose tiles have slots for their stays in memory. The stays are those of a retention; some
// are cut into several if the slots do not fit otherwise.
class Retention;
class PackedLine {
public:
    ~PackedLine();
    PackedLine(PackedLine&&);
    // The steps of a run. lead: seconds from the beginning of a load to the use of the tile, and
    // from the last use of a tile to the end of its store; less where other tiles need the slot.
    Placement place(double lead) const;

private:
    struct Parts;
    friend std::optional<PackedLine> pack(const Line&, uint32_t, const Retention&, double,
                                          const LineEnds*);
    explicit PackedLine(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};
// Returns nothing if the slots do not fit. With a share of 0 they always fit if the memory suffices
// for each task and, if ends are given, their slots do not overlap. The line, the retention and the
// ends must outlive the result. share, ends: see Retention.
std::optional<PackedLine> pack(const Line& line, uint32_t blocks, const Retention& retention,
                               double share, const LineEnds* ends);

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
