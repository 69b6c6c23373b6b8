#include "engine/base/error.h"

#include <cstdarg>
#include <cstdio>

namespace nn {
namespace {

std::string vformat(const char* text, va_list args) {
    va_list again;
    va_copy(again, args);
    std::string out(size_t(std::vsnprintf(nullptr, 0, text, again)), '\0');
    va_end(again);
    std::vsnprintf(out.data(), out.size() + 1, text, args);
    return out;
}

}  // namespace

std::string format(const char* text, ...) {
    va_list args;
    va_start(args, text);
    std::string out = vformat(text, args);
    va_end(args);
    return out;
}

void fail(const char* text, ...) {
    va_list args;
    va_start(args, text);
    const std::string message = vformat(text, args);
    va_end(args);
    throw Error(message);
}

std::string human_bytes(double bytes) {
    static const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 5) bytes /= 1000, ++unit;
    return format(unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

}  // namespace nn
