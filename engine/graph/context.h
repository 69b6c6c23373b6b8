// The state of the session that tasks take up when they are emitted or submitted: settings, the
// layer at work, scalars and the random state. Main thread only.
#pragma once
#include <cstdint>
#include <string>

namespace nn {

enum class Where : uint8_t { anywhere, cpu, gpu };

struct Settings {
    Where where = Where::anywhere;  // of tasks that do not say so themselves
    bool tf32 = false;              // products of f32 may be rounded to TF32 on GPUs
    int32_t attention = 0;          // a number of nn_attention_params::backend
};

inline Settings chosen_settings;
inline Settings& settings() { return chosen_settings; }

// The layer at work: the module that emits a task, as a path such as "blocks.3.mlp". Profiles and
// traces name tasks by it.
int32_t layer_id(const std::string& name);  // 0 for ""; the same number for the same name
const char* current_layer();                // lives for ever
int32_t set_layer(int32_t id);              // returns the one before

// Scalars are numbers that tasks read when they are submitted, so that a recorded program follows
// them.
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
