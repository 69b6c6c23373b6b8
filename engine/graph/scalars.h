// Scalars are numbers that tasks read when they are submitted, so that a recorded program follows
// them; the random state decides random numbers likewise. Main thread only.
#pragma once
#include <cstdint>

namespace nn {

int32_t new_scalar(double value);
void free_scalar(int32_t scalar);
// A program holds a scalar that it reads: the value stays after free_scalar() until the release.
void hold_scalar(int32_t scalar);
void release_scalar(int32_t scalar);
double scalar_value(int32_t scalar);
void set_scalar(int32_t scalar, double value);

// A random task's key is (seed, counter). Eagerly, the counter is the session's at submission; a
// recording counts from 0, and each replay adds the session's counter at its start.
void seed_random(uint64_t seed);  // and sets the counter to 0
uint64_t random_seed();
uint64_t random_counter();
void set_random_counter(uint64_t counter);

}  // namespace nn
