// Carries out the transfers of slots, with the faults that tests plant (base/planted_faults.h).
#pragma once
#include "engine/memory/store.h"

namespace nn {

// As Store::read and Store::write.
void carry_out(Store& store, Transfer transfer);
void end_late_transfers();  // waits for planted ones, before slots end

}  // namespace nn
