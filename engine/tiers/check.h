// What the checks of placements share: they end at the first problem that they find.
#pragma once
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/tiers/line.h"

namespace nn {

struct Broken : Error {
    using Error::Error;
};

template <class... Arguments> [[noreturn]] void broken(const char* text, Arguments... arguments) {
    throw Broken(format(text, arguments...));
}

// Calls check() -> the problem that it found, or "".
template <class F> std::string problem_of(F check) {
    try {
        check();
    } catch (const Broken& problem) {
        return problem.what();
    }
    return "";
}

// How many accesses read each value of each tile. Value 0 is that before the run; each write begins
// the next one.
inline std::vector<std::vector<uint32_t>> reads_of_values(const Line& line) {
    std::vector<std::vector<uint32_t>> out(line.tiles.size(), {0});
    for (const auto& access : line.accesses.list) {
        if (access.mode != Mode::write) ++out[access.tile].back();
        if (access.mode != Mode::read) out[access.tile].push_back(0);
    }
    return out;
}

}  // namespace nn
