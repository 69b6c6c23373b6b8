// The memory that tiles can still take: the machine's available memory, within the limits of the
// process (RLIMIT_AS and RLIMIT_DATA: ulimit -v and -d) and of its control groups (containers,
// batch systems; version 1 and 2). Cached pages of files count as free, since the system evicts
// them when memory is short.
#pragma once
#include <cstdint>

namespace nn {

// Bytes for further tiles: 90 % of the available memory; under a limit, at most 95 % of what
// remains after the rest of the process, which has this many workers. 0: nothing remains.
// tiles: bytes that tiles take already.
int64_t available_memory(int workers, int64_t tiles);
void workers_start();      // call it before the workers take memory, which then counts as used
void workers_stopped();    // call it after they have ended
int64_t largest_budget();  // the most that this process could ever use

// Resident bytes of this process, with mapped files: now, and the largest number so far.
struct ResidentMemory {
    int64_t now = 0, peak = 0;
};
ResidentMemory resident_memory();
// Bytes that a running program takes besides its tiles: as long as it exists, and for the tasks
// that are submitted and not done.
struct EngineRecords {
    int64_t lasting = 0, in_flight = 0;
};
// The RAM that a training needs besides its tiles: what the process takes now without `tiles` bytes
// of tiles, page tables for `most_tiles` bytes, what the workers take at their first tasks, and
// records. Call it while the step is recorded and its plan exists.
int64_t rest_of_process(int workers, int64_t tiles, int64_t most_tiles,
                        const EngineRecords& records);

}  // namespace nn
