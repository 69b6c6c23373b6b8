// What malloc keeps of freed memory. By default it keeps freed blocks of up to 32 MB, and every
// thread keeps its own: after a plan was made, a training of 100 MB kept 50 MB that nobody used.
#pragma once
#include <malloc.h>

namespace nn {

// Blocks of at least a megabyte are mapped, and leave the process when they are freed. Call it
// before the first thread starts.
inline void limit_free_memory() {
    constexpr int megabyte = 1 << 20;
    mallopt(M_MMAP_THRESHOLD, megabyte);
    mallopt(M_TRIM_THRESHOLD, megabyte);
}

// Returns the free pages of all threads to the system.
inline void return_free_memory() { malloc_trim(0); }

}  // namespace nn
