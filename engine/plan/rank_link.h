// The rate at which ranks exchange tiles, for plans.
#pragma once

namespace nn {

// Bytes/s that a rank sends while all do: as described, or measured in this process, else assumed.
double rank_link_rate();
bool rank_link_is_assumed();
void measure_rank_link();  // every rank calls it
double rank_transfer_seconds(double bytes);

}  // namespace nn
