#include "engine/schedule/choose_ways.h"

#include <map>
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

struct Report {
    ~Report() { report_work(nullptr); }
};

// Finds the ways of shapes that are not known yet.
void measure(const std::map<std::string, products::Widths>& shapes) {
    const Report ends;
    size_t number = 0;
    for (const auto& [name, widths] : shapes) {
        ++number;
        if (products::known_way(name)) continue;
        idle();  // workers that poll would disturb
        report_work(format("measuring products: %zu of %zu", number, shapes.size()).c_str());
        products::fastest_way(widths);
        check_interrupt();
    }
}

// All ranks call it with the same shapes.
void take_ways_of_first_rank(const std::map<std::string, products::Widths>& shapes) {
    std::map<std::string, products::Way> ways;
    if (ranks().rank == 0) {
        measure(shapes);
        for (const auto& [name, widths] : shapes) ways[name] = products::fastest_way(widths);
    }
    const std::string what = "the choice of products";
    set_ways_of_first_rank(control::gather(what, text_of_ways(ways), check_interrupt)[0]);
}

}  // namespace

void choose_product_ways(Program& program) {
    if (program.is_plan && (machine_is_described() || ranks().several())) return;
    std::map<std::string, products::Widths> shapes;
    for (const Task& task : program.tasks)
        if (const auto widths = product_widths(task.arg))
            shapes.emplace(products::name_of(*widths), *widths);
    if (!ranks().several())
        measure(shapes);
    else if (is_distributed(program) && !shapes.empty())
        take_ways_of_first_rank(shapes);
    for (Task& task : program.tasks)
        if (const auto widths = product_widths(task.arg))
            if (const auto way = products::known_way(products::name_of(*widths)))
                set_product_way(task.arg, *way);
}

}  // namespace nn
