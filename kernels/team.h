// Workers that help with the loop of one kernel. Some programs are a chain of tasks, each of which
// is bound by reading memory faster than one core can: generating text a token at a time is one.
// There the engine lets workers with nothing else to do help (engine/submit.cc), and a kernel hands
// out its loop in parts. What is computed does not depend on who computes which part.
#pragma once
#include <cstdint>

namespace nn::team {

// Products of at most so many rows read their matrix once and split its columns (cpu/gemm.cc);
// beyond, OpenBLAS is faster.
constexpr int64_t few_rows = 12;

// Computes indices [begin, end) of a loop.
using Body = void (*)(void* context, int64_t begin, int64_t end);

// Runs the loop over [0, length) on this thread and on those that help, in parts, and returns when
// all have ended. Throws std::bad_alloc where a part found no memory.
void split(int64_t length, Body body, void* context);

// Helps other threads with their loops while wanted() holds. Returns at once where `most` threads
// help already.
void help(int most, bool (*wanted)());

}  // namespace nn::team
