// Threads that share the loop of one kernel. Some programs are a chain of tasks bound by memory,
// such as generating text token by token; several cores read memory faster than one. There the
// engine lets idle workers help (engine/runtime/submit.cc), and a kernel splits its loop into
// chunks. The result does not depend on which thread computes which chunk.
#pragma once
#include <cstdint>

namespace nn::team {

// Products of at most this many rows read their matrix once; threads share its columns
// (cpu/gemm.cc). With more rows OpenBLAS is faster.
constexpr int64_t few_rows = 12;

// Computes indices [begin, end) of a loop.
using Body = void (*)(void* context, int64_t begin, int64_t end);

// Runs a loop over [0, length) on this thread and on the helpers, and returns when all chunks have
// ended. Throws std::bad_alloc if a chunk found no memory.
void parallel_for(int64_t length, Body body, void* context);

// Helps other threads with their loops while wanted() is true. Returns at once if `max_helpers`
// threads help already.
void help(int max_helpers, bool (*wanted)());

}  // namespace nn::team
