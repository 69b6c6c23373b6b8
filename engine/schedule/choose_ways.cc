#include "engine/schedule/choose_ways.h"

#include <string>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/base/progress.h"
#include "engine/graph/product_ways.h"
#include "engine/machine/description.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/schedule/distribute_over_ranks.h"
#include "engine/workers/waits.h"

namespace nn {
namespace {

using products::Way;
using products::Widths;
using Ways = std::map<Widths, std::optional<Way>>;

void measure(Ways& ways) {
    size_t number = 0;
    for (auto& [widths, way] : ways) {
        ++number;
        if (way) continue;
        idle();  // workers that poll would disturb
        report_work(format("measuring products: %zu of %zu", number, ways.size()).c_str());
        way = products::fastest_way(widths);
        report_work(nullptr);
        check_interrupt();
    }
}

// All ranks have the same widths in the same order.
void take_those_of_first_rank(Ways& ways) {
    std::string mine;
    if (ranks().rank == 0) {
        measure(ways);
        for (const auto& [widths, way] : ways) mine += char('0' + int(*way));
    }
    const std::string first = control::gather("the choice of products", mine, check_interrupt)[0];
    size_t number = 0;
    for (auto& [widths, way] : ways) {
        way = Way(first.at(number++) - '0');
        need_way_of_first_rank(*way, widths.bf16);
        products::set_way(widths, *way);
    }
}

}  // namespace

void choose_product_ways(Program& program) {
    if (program.is_plan && (machine_is_described() || ranks().several())) return;
    Ways ways;
    for (const Task& task : program.tasks)
        if (const auto widths = product_widths(task.arg))
            ways[*widths] = products::known_way(*widths);
    if (!ranks().several())
        measure(ways);
    else if (is_distributed(program) && !ways.empty())
        take_those_of_first_rank(ways);
    for (Task& task : program.tasks)
        if (const auto widths = product_widths(task.arg); widths && ways[*widths])
            set_product_way(task.arg, *ways[*widths]);
}

}  // namespace nn
