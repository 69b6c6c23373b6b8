// What a search for a plan found, without the program, so that the same program gets the same plan
// again without a search: in this process, and from a folder in later ones.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

struct FoundPlan {
    PlanChoice choice;
    std::vector<uint32_t> blocks;       // by level
    std::vector<int64_t> least_moved;   // by level
    std::vector<Placement> placements;  // of the runs of the plan, in the order of runs_of()
};

FoundPlan found_plan(const ProgramPlan& plan);
// The plan of a program, checked. Throws Error if `found` is not a plan for it.
ProgramPlan plan_again(const FoundPlan& found, const Program& program,
                       const std::vector<double>& seconds, const PlanLimits& limits);

// A hash of all on which a plan depends, except rates and times: programs that differ only in the
// numbers of their tiles and of their first task have the same key.
uint64_t plan_key(const Program& program, const std::vector<double>& seconds,
                  const PlanLimits& limits);

// The bytes that the links of each level can move while the tasks of a run compute. A plan depends
// on little else that is measured, and varies from one start to the next.
using LinkBytes = std::vector<double>;
LinkBytes link_bytes(const Program& program, const std::vector<double>& seconds,
                     const PlanLimits& limits);

// What kept a search from the best plan: it ended because of its time, or other plans needed more
// room on the disk than these bytes (0: none did).
struct SearchLimits {
    bool by_time = false;
    int64_t disk = 0;
};
// The plan with this key that this process or an earlier one kept, if it was made for nearly the
// same bytes of links, and if its search had no less time and room on the disk than there is now,
// or needed no more; else null. disk: the room. The pointer is valid until the next call.
const FoundPlan* kept_plan(uint64_t key, const LinkBytes& bytes, int64_t disk);
// Keeps it in memory and in a file (base/kept_file.h); the files not used for the longest time are
// removed.
void keep_plan(uint64_t key, const LinkBytes& bytes, const SearchLimits& limits, FoundPlan plan);

void forget_plans();  // those in memory
// How many plans of earlier processes were used.
size_t plans_from_folder();

}  // namespace nn
