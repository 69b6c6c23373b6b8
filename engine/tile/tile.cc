#include "engine/tile/tile.h"

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"

namespace nn {
namespace {

uint32_t recording = 0;
uint64_t created = 0;

}  // namespace

uint32_t recording_number() { return recording; }
void set_recording_number(uint32_t number) {
    recording = number;
    interrupts.recording = number != 0;
}

uint64_t tiles_created() { return created; }

Tile::Tile(size_t size)
    : bytes(size), number(++created), recording(recording_number()), is_admitted_(recording == 0) {
    if (is_admitted_) admit(int64_t(arena_bytes(size)), "a tile");
}

Tile::~Tile() {
    if (is_admitted_) release_admission(int64_t(arena_bytes(bytes)));
}

void Tile::keep_on(int32_t rank, bool is_this_one) {
    owner = rank, only_owner = true;
    set_admitted(is_this_one);
}

void Tile::keep_on_all() {
    only_owner = false;
    set_admitted(true);
}

void Tile::set_admitted(bool wanted) {
    if (recording || is_admitted_ == wanted) return;
    if (wanted)
        admit(int64_t(arena_bytes(bytes)), "a tile");
    else
        release_admission(int64_t(arena_bytes(bytes)));
    is_admitted_ = wanted;
}

void Tile::check_readable(const char* op) const {
    if (has_value() || (recorded && recording_number())) return;
    if (value == Value::remote && recording_number()) return;  // the program may receive it
    if (value == Value::failed)
        fail("%s: needs a tensor that was not computed, since a task before it failed", op);
    if (value == Value::ended)
        fail("%s: reads a tensor whose value ended with the engine's shutdown", op);
    if (value == Value::remote)
        fail(
            "%s: reads a tensor that only rank %d keeps: a moment of an optimizer or, with "
            "cluster.shard=weights, a weight. Read a weight in a compiled function that all ranks "
            "call.",
            op, owner);
    fail("%s: reads a tensor that was never given a value", op);
}

}  // namespace nn
