// Sends tiles between ranks. Opens libnnlua_mpi.so (engine/ranks/plugin.h) when there are several
// ranks.
#pragma once
#include <cstdint>
#include <string>

namespace nn::transport {

void check_installed(bool has_mpirun);                // throws with advice if something is missing
void open();                                          // starts MPI
void gather(const void* mine, void* all, int bytes);  // of each rank, in their order
// Bytes/s that each rank receives while all exchange data; every rank calls it.
double measured_rate();
// After StarPU started. failed: called on any thread if MPI reports an error.
void start(void (*failed)(const char* what));
void stop();  // before StarPU stops; every rank calls it
void finish();

struct Counts {
    int64_t messages_sent = 0, bytes_sent = 0, bytes_received = 0;
};
const Counts& counts();  // submitted since the start of the process

// A larger tile leaves when the receiver has memory for it; otherwise the receiver would buffer it,
// outside of any budget. A smaller one is buffered, which saves a round trip.
constexpr int64_t buffered_bytes = 64 << 10;

// Tasks submitted later wait for it, and it waits for earlier ones, as if it were a task that reads
// (send) or writes (receive) the tile. handle: of StarPU.
// tile: its number, for errors.
void send(void* handle, uint64_t tile, int64_t bytes, int to, int64_t tag, int priority);
void receive(void* handle, uint64_t tile, int64_t bytes, int from, int64_t tag);
int64_t under_way();                     // transfers that have not ended; 0 without several ranks
std::string description_of_transfers();  // a line for each, at most 9. Any thread.

}  // namespace nn::transport
