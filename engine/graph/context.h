// The state of the session that affects emitted or submitted tasks: settings, the current layer,
// scalars and the random state. Main thread only.
#pragma once
#include <cstdint>
#include <string>

namespace nn {

// anywhere: where the scheduler predicts the earliest end, so results may depend on timing in the
// last bits. automatic: on GPUs if there are any; on CPUs if memory tiers plan the task.
enum class Where : uint8_t { anywhere, cpu, gpu, automatic };

struct Settings {
    Where where = Where::automatic;  // of tasks without their own
    bool tf32 = false;               // GPUs may round the operands of f32 products to TF32
    int32_t attention = 0;           // a number of nn_attention_params::backend
    bool bf16_gradients = false;     // of bf16 weights, where one product computes them
    int64_t gpu_tier = -1;           // bytes of tiles that tiers keep on a GPU; -1: no tiers
};

inline Settings chosen_settings;
inline Settings& settings() { return chosen_settings; }

// Of the machine, which may only be described: the GPUs if they run tasks, else 0; and the workers
// that run tasks, those GPUs or all CPU workers.
int gpus_in_use();
int workers_in_use();

// The current layer: the path of the module that emits tasks, such as "blocks.3.mlp", for profiles
// and traces.
int32_t layer_id(const std::string& name);  // 0 for ""; the same number for the same name
const char* current_layer();                // always valid
int32_t set_layer(int32_t id);              // returns the previous one

// Scalars are numbers that tasks read when they are submitted, so their values may change between
// replays.
int32_t new_scalar(double value);
void free_scalar(int32_t scalar);
// A program holds the scalars that it reads: they remain after free_scalar() until the release.
void hold_scalar(int32_t scalar);
void release_scalar(int32_t scalar);
double scalar_value(int32_t scalar);
void set_scalar(int32_t scalar, double value);

// The key of a random task is (seed, counter). An eager task takes the session's counter; a
// recording counts from 0, and each replay adds the session's counter at its start.
void seed_random(uint64_t seed);  // and sets the counter to 0
uint64_t random_seed();
uint64_t random_counter();
void set_random_counter(uint64_t counter);

}  // namespace nn
