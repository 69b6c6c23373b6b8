// Decides whether the workers form a team, which shares the loops of single tasks. A team is faster
// if most of a program's time is in tasks that can be split and are long enough.
#include "engine/graph/cost.h"
#include "engine/graph/passes/loops.h"
#include "engine/graph/passes/passes.h"

namespace nn {

void find_teams(Program& program) {
    constexpr double long_enough = 20e-6;
    double all = 0, split = 0;
    bool moves = false;  // values between ranks, for which no worker waits
    const std::vector<uint32_t> runs = runs_of_tasks(program);
    for (size_t t = 0; t < program.tasks.size(); ++t) {
        const double seconds = runs[t] * nominal_seconds(program.tasks[t].arg);
        all += seconds;
        moves = moves || program.tasks[t].is_transfer();
        if (program.tasks[t].splits && seconds > runs[t] * long_enough) split += seconds;
    }
    program.in_team = split > all / 2 && !moves;
    for (Task& task : program.tasks) task.arg.in_team = program.in_team;
}

void dissolve_team(Program& program) {
    program.in_team = false;
    for (Task& task : program.tasks) task.arg.in_team = false;
}

}  // namespace nn
