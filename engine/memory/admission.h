// Decides whether tensors fit into host memory, and raises the error if not. Tiles count from their
// creation, even before they are written. Main thread only, except budget().
#pragma once
#include <cstdint>
#include <string>

namespace nn {

int64_t budget();  // bytes that tiles may take; 0: the limits of the process leave none
// bytes 0: the default, measured again: what tiles take and what is available(). blocks: bytes of
// the arena, arena_taken(), which the system counts as used.
void set_budget(int64_t bytes, int64_t blocks = 0);
int64_t available(int64_t blocks);  // bytes that the system can still provide for tiles
void forget_default_budget();       // call it when the number of workers changes
void check_room();         // throws OutOfMemory if the limits of the process leave no budget
int64_t admitted_bytes();  // of all tiles that exist
void set_disk_capacity(int64_t bytes);  // that tiles may take beside the budget
// Counts StarPU's handles: +1 registered, -1 unregistered. The records of each take handle_bytes.
void count_handle(int change);
constexpr int64_t handle_bytes = 5 << 10;  // measured with StarPU built for 12 memory nodes

bool fits(int64_t bytes);  // whether so many more are within the budget
// Whether `temporaries` bytes of a program and `records` bytes fit. Temporaries that fit into
// `on_gpus` bytes beside all tensors take no RAM.
bool fits_with_gpus(int64_t temporaries, int64_t on_gpus, int64_t records);
[[noreturn]] void refuse_admission(int64_t bytes, const std::string& what);  // throws OutOfMemory
void admit(int64_t bytes, const char* what);  // counts them, or throws OutOfMemory
void release_admission(int64_t bytes);

}  // namespace nn
