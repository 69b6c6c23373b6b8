#include "engine/base/grace.h"

#include <cstdlib>

#include "engine/base/error.h"

namespace nn {

double grace_limit() {
    const char* const text = std::getenv("NNLUA_GRACE");
    if (!text || !*text) return 20;
    char* end = nullptr;
    const double seconds = std::strtod(text, &end);
    if (*end || !(seconds >= 0 && seconds < 1e9))
        fail("NNLUA_GRACE is '%s'; a number of seconds is needed, 0 for no limit", text);
    return seconds;
}

}  // namespace nn
