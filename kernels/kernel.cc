#include "kernels/kernel.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace nn {

void KernelCall::fail(const char* format, ...) const {
    if (!error || !error->empty()) return;
    char text[256];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *error = text;
}

bool KernelCall::has_failed() const { return error && !error->empty(); }

size_t dtype_size(Dtype dtype) {
    static const size_t sizes[] = {4, 8, 2, 4, 8, 1, 1};
    return sizes[int(dtype)];
}

bool representable(double value, Dtype dtype) {
    const auto whole_within = [value](double low, double high) {
        return value >= low && value <= high && value == std::floor(value);
    };
    switch (dtype) {
        case Dtype::i32: return whole_within(-0x1p31, 0x1p31 - 1);
        case Dtype::i64: return whole_within(-0x1p63, 0x1p63 - 1024);
        case Dtype::u8: return whole_within(0, 255);
        case Dtype::boolean: return whole_within(0, 1);
        default: return true;
    }
}

const char* dtype_name(Dtype dtype) {
    static const char* const names[] = {"f32", "f64", "bf16", "i32", "i64", "u8", "bool"};
    return names[int(dtype)];
}

}  // namespace nn
