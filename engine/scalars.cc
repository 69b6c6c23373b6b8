// Scalar slots, and the random state: what tasks read at submission.
#include <vector>

#include "engine/error.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {
namespace {

struct Slot {
    double value;
    bool owned = true;  // until free_slot
    int32_t held = 0;   // by programs
};
std::vector<Slot> slots;
std::vector<int32_t> free_slots;
uint64_t seed = 0, counter = 0;  // of random numbers

Slot& slot_at(int32_t slot) {
    if (slot >= 0 && size_t(slot) < slots.size()) {
        Slot& found = slots[size_t(slot)];
        if (found.owned || found.held) return found;
    }
    fail("there is no scalar slot %d (or it was freed)", slot);
}

void reuse_if_unused(int32_t slot) {
    const Slot& s = slots[size_t(slot)];
    if (!s.owned && !s.held) free_slots.push_back(slot);
}

}  // namespace

int32_t new_slot(double value) {
    if (!free_slots.empty()) {
        const int32_t slot = free_slots.back();
        free_slots.pop_back();
        slots[size_t(slot)] = {value};
        return slot;
    }
    slots.push_back({value});
    return int32_t(slots.size()) - 1;
}

void free_slot(int32_t slot) {
    if (!slot_at(slot).owned) fail("scalar slot %d was freed before", slot);
    slot_at(slot).owned = false;
    reuse_if_unused(slot);
}
void hold_slot(int32_t slot) { ++slot_at(slot).held; }
void release_slot(int32_t slot) {
    --slot_at(slot).held;
    reuse_if_unused(slot);
}
double slot_value(int32_t slot) { return slot_at(slot).value; }
void set_slot(int32_t slot, double value) { slot_at(slot).value = value; }

void seed_random(uint64_t new_seed) {
    seed = new_seed;
    counter = 0;
}
uint64_t random_seed() { return seed; }
uint64_t random_counter() { return counter; }
void set_random_counter(uint64_t value) { counter = value; }
uint64_t next_random() {
    if (Program* program = recording_program()) return program->next_random();
    return counter++;
}

}  // namespace nn
