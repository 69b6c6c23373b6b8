// Scalars that are computed from others (context.h). Main thread only.
#pragma once
#include <cstdint>

namespace nn {

// A scalar that is computed at each read: a + b, a - b, a * b, a / b or a ^ b, by `op`. It holds
// its operands, which are numbers or scalars.
struct ScalarOperand {
    double number = 0;
    int32_t scalar = -1;
};
int32_t computed_scalar(char op, ScalarOperand a, ScalarOperand b);
bool depends_on(int32_t scalar, int32_t other);        // also on itself
bool same_computation(int32_t scalar, int32_t other);  // of the same scalars and numbers

}  // namespace nn
