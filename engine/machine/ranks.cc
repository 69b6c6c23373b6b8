#include "engine/machine/ranks.h"

#include <cstdlib>

#include "engine/base/error.h"

namespace nn {
namespace {

int number_of(const char* name, int least, int below) {
    const char* text = std::getenv(name);
    char* end = nullptr;
    const long number = text ? std::strtol(text, &end, 10) : -1;
    if (!text || *end || number < least || number >= below)
        fail("%s is '%s'; mpirun sets it to a number from %d to %d", name, text ? text : "", least,
             below - 1);
    return int(number);
}

Ranks detect() {
    constexpr int most = 1 << 16;
    Ranks out;
    if (!std::getenv("OMPI_COMM_WORLD_SIZE")) return out;
    out.count = number_of("OMPI_COMM_WORLD_SIZE", 1, most);
    out.rank = number_of("OMPI_COMM_WORLD_RANK", 0, out.count);
    out.on_host = number_of("OMPI_COMM_WORLD_LOCAL_SIZE", 1, out.count + 1);
    out.number_on_host = number_of("OMPI_COMM_WORLD_LOCAL_RANK", 0, out.on_host);
    return out;
}

}  // namespace

const Ranks& ranks() {
    static const Ranks detected = detect();
    return detected;
}

}  // namespace nn
