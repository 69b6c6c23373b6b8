#include "engine/plan/rank_link.h"

#include "engine/base/interrupts.h"
#include "engine/machine/description.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/ranks/transport.h"

namespace nn {

static double measured_rate = 0;

double rank_link_rate() {
    constexpr double assumed = 1.25e9;  // 10 Gbit/s
    if (machine().rank_link > 0) return machine().rank_link;
    return measured_rate > 0 ? measured_rate : assumed;
}

bool rank_link_is_assumed() { return machine().rank_link == 0 && measured_rate == 0; }

void measure_rank_link() {
    if (!ranks().several()) return;
    control::gather("the rate between ranks", "", check_interrupt);  // MPI's wait has no end
    measured_rate = transport::measured_rate();
}

double rank_transfer_seconds(double bytes) {
    constexpr double message = 5e-5;  // from one rank's thread for MPI to the other's
    return message + bytes / rank_link_rate();
}

}  // namespace nn
