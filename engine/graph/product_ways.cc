#include "engine/graph/product_ways.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "kernels/params/gemm.h"
#include "kernels/team.h"

namespace nn {

static bool is_product(const TaskArg& arg) {
    const std::string& name = arg.kernel->name;
    const bool may_be = arg.dtype == Dtype::f32 || arg.dtype == Dtype::bf16;
    return may_be && (name == "gemm" || name == "gemm_dgelu" || name == "gemm_dglu");
}

std::optional<products::Widths> product_widths(const TaskArg& arg) {
    if (!is_product(arg) || gpus_in_use() > 0) return {};
    nn_gemm_params p;
    std::memcpy(&p, arg.params, sizeof p);
    if (p.m <= team::few_rows) return {};
    return products::widths_of(arg.dtype == Dtype::bf16, p.trans_a, p.trans_b, p.m, p.n, p.k);
}

void set_product_way(TaskArg& arg, products::Way way) {
    nn_gemm_params p;
    std::memcpy(&p, arg.params, sizeof p);
    p.way = 1 + int32_t(way);
    std::memcpy(arg.params, &p, sizeof p);
}

void need_way_of_first_rank(products::Way way, bool bf16) {
    if (const std::string problem = products::why_unusable(way, bf16); !problem.empty())
        fail("rank 0 multiplies %s by %s, which this rank cannot: %s; set NNLUA_PRODUCTS=openblas",
             bf16 ? "bf16" : "f32", products::way_name(way), problem.c_str());
}

}  // namespace nn
