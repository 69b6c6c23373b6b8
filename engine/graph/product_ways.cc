#include "engine/graph/product_ways.h"

#include <cstring>
#include <sstream>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/machine/ranks.h"
#include "kernels/params/gemm.h"
#include "kernels/team.h"

namespace nn {

static bool is_product(const TaskArg& arg) {
    const std::string& name = arg.kernel->name;
    const bool may_be = arg.dtype == Dtype::f32 || arg.dtype == Dtype::bf16;
    return may_be && (name == "gemm" || name == "gemm_dgelu" || name == "gemm_dglu");
}

std::optional<products::Widths> product_widths(const TaskArg& arg) {
    const bool on_gpus = !ranks().several() && gpus_in_use() > 0;  // ranks: agree_on_products()
    if (!is_product(arg) || on_gpus) return {};
    const nn_gemm_params p = params_of<nn_gemm_params>(arg);
    if (p.m <= team::few_rows) return {};
    return products::widths_of(arg.dtype == Dtype::bf16, p.trans_a, p.trans_b, p.m, p.n, p.k);
}

void set_product_way(TaskArg& arg, products::Way way) {
    nn_gemm_params p = params_of<nn_gemm_params>(arg);
    p.way = 1 + int32_t(way);
    std::memcpy(arg.params, &p, sizeof p);
}

const char* chosen_library(const TaskArg& arg) {
    const int32_t way = is_product(arg) ? params_of<nn_gemm_params>(arg).way : 0;
    return way > 0 ? products::way_name(products::Way(way - 1)) : "";
}

void need_way_of_first_rank(products::Way way, bool bf16) {
    if (const std::string problem = products::why_unusable(way, bf16); !problem.empty())
        fail("rank 0 multiplies %s by %s, which this rank cannot: %s; set NNLUA_PRODUCTS=openblas",
             bf16 ? "bf16" : "f32", products::way_name(way), problem.c_str());
}

std::string text_of_ways(const std::map<std::string, products::Way>& ways) {
    std::string out;
    for (const auto& [name, way] : ways) out += name + ' ' + std::to_string(int(way)) + '\n';
    return out;
}

void set_ways_of_first_rank(const std::string& text) {
    std::istringstream lines(text);
    std::string name;
    for (int number = 0; lines >> name >> number;) {
        need_way_of_first_rank(products::Way(number), name.rfind("bf16", 0) == 0);
        products::set_way(name, products::Way(number));
    }
}

}  // namespace nn
