// What the session chose for tasks emitted from now on. Ops write it into the tasks they emit.
#pragma once
#include <cstdint>

namespace nn {

enum class Where : uint8_t { anywhere, cpu, gpu };

struct Settings {
    Where where = Where::anywhere;  // of tasks that do not say so themselves
    bool tf32 = false;              // products of f32 may be rounded to TF32 on GPUs
    int32_t attention = 0;          // a number of nn_attention_params::backend
};

inline Settings chosen_settings;
inline Settings& settings() { return chosen_settings; }

}  // namespace nn
