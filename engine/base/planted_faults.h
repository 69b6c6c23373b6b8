// Faults that tests plant to see whether nn.checks "tiles" finds them: NNLUA_PLANT=KIND:NUMBER, a
// comma between several. The NUMBER-th occasion for this fault has it; with KIND:NUMBER:RANK only
// on that rank. Without the variable, no occasion is counted.
#pragma once
#include <cstdlib>

namespace nn::planted {

enum Kind {
    // A transfer between a slot and what is below is not carried out, though it counts as done; is
    // done late, after what waits for it has begun; is done twice, the second time late; or reads
    // or writes a wrong place.
    load_lost,
    load_late,
    load_twice,
    load_astray,
    store_lost,
    store_late,
    store_twice,
    store_astray,
    slot_altered,  // a byte of a slot changes after a load
    tile_altered,  // a byte of a result changes after its task
    copy_stale,    // a tile has changed, and its old copy in the store counts as valid
    // A message to another rank is not sent; arrives in the place of the next one of the same size,
    // and that one in its place; or arrives with a wrong byte.
    message_lost,
    message_swapped,
    message_altered,
    kinds
};

inline const bool are_wanted = std::getenv("NNLUA_PLANT") != nullptr;
bool is_next_occasion(Kind kind);  // throws Error if the variable is wrong
// Whether this occasion has the fault. Any thread.
inline bool is_next(Kind kind) { return are_wanted && is_next_occasion(kind); }

}  // namespace nn::planted
