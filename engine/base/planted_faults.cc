#include "engine/base/planted_faults.h"

#include <array>
#include <atomic>
#include <sstream>
#include <string>

#include "engine/base/error.h"

namespace nn::planted {
namespace {

constexpr std::array<const char*, kinds> names = {
    "load_lost",  "load_late",    "load_twice",      "load_astray",    "store_lost",
    "store_late", "store_twice",  "store_astray",    "slot_altered",   "tile_altered",
    "copy_stale", "message_lost", "message_swapped", "message_altered"};

struct Plan {
    std::array<int, kinds> number{};  // of the occasion; 0: none
    std::array<std::atomic<int>, kinds> occasions{};
};

void plant(Plan& plan, const std::string& text) {
    std::istringstream parts(text);
    std::string name;
    int number = 0, rank = -1;
    char colon = 0;
    std::getline(parts, name, ':');
    parts >> number;
    if (parts >> colon) parts >> rank;
    size_t kind = 0;
    while (kind < names.size() && name != names[kind]) ++kind;
    if (kind == names.size() || number < 1 || parts.fail() != (colon == 0))
        fail("NNLUA_PLANT has '%s'; KIND:NUMBER or KIND:NUMBER:RANK is needed", text.c_str());
    const char* const here = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank < 0 || (here && std::atoi(here) == rank)) plan.number[kind] = number;
}

Plan* new_plan() {
    auto* const plan = new Plan;
    std::istringstream all(std::getenv("NNLUA_PLANT"));
    for (std::string text; std::getline(all, text, ',');) plant(*plan, text);
    return plan;
}

}  // namespace

bool is_next_occasion(Kind kind) {
    static Plan* const plan = new_plan();
    return plan->number[kind] > 0 && ++plan->occasions[kind] == plan->number[kind];
}

}  // namespace nn::planted
