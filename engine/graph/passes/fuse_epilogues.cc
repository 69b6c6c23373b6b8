// Fuses the backward pass of an activation into the matrix product that computes the gradient.
// Instead of a separate task (a sweep) over the result of the product, the product's epilogue
// multiplies by the activation's slope while the result is in cache, and sums the columns for the
// gradient of a bias.
#include <algorithm>

#include "engine/graph/passes/passes.h"

namespace nn {
namespace {

// Replaces the sweep (result, sums?, gradient, saved) by an epilogue of the product (c, a, b,
// sums?, saved). Another activation needs a line here.
struct Fusion {
    const char *sweep, *product;
    int32_t epilogue;
};
constexpr Fusion fusions[] = {{"gelu_bias_backward", "gemm_dgelu", 3}};
enum { sweep_result, sweep_sums, sweep_gradient, sweep_saved };

const Fusion* fusion_of(const Task& sweep) {
    for (const Fusion& fusion : fusions)
        if (sweep.arg.kernel->name == fusion.sweep) return &fusion;
    return nullptr;
}

int handle_of_operand(const Task& task, int operand) { return task.arg.buffer_of[operand]; }

// The accesses to every tile, in order: the task, and the tile's position among its handles.
struct Touch {
    uint32_t task;
    int handle;
};
using Touches = std::vector<std::vector<Touch>>;

Touches touches_in(const Accesses& accesses) {
    Touches out(accesses.tiles);
    for (uint32_t t = 0; t < accesses.tasks(); ++t)
        for (const auto* a = accesses.begin(t); a != accesses.end(t); ++a)
            out[a->tile].push_back({t, int(a - accesses.begin(t))});
    return out;
}

class Fuser {
public:
    explicit Fuser(Program& program)
        : program_(program),
          accesses_(program.accesses()),
          touches_(touches_in(accesses_)),
          outputs_(tiles_of(program.outputs)) {
        std::sort(outputs_.begin(), outputs_.end());
    }

    // Fuses sweep t into the products that compute its input; returns false if it cannot.
    bool fuse(uint32_t t) {
        const Task& sweep = program_.tasks[t];
        const Fusion* fusion = fusion_of(sweep);
        if (!fusion || sweep.where != Where::anywhere) return false;
        const std::vector<Touch>& chain = touches_of(t, sweep_gradient);
        const TilePtr& gradient = sweep.tiles[handle_of_operand(sweep, sweep_gradient)];
        if (chain.size() < 2 || chain.back().task != t || !gradient->recording ||
            std::binary_search(outputs_.begin(), outputs_.end(), gradient))
            return false;
        const uint32_t last = chain[chain.size() - 2].task;
        for (size_t i = 0; i + 1 < chain.size(); ++i)
            if (!is_plain_product(chain[i])) return false;
        // At the product, the sweep's inputs must be computed and its outputs not in use.
        for (int operand : {sweep_result, sweep_sums, sweep_saved}) {
            if (handle_of_operand(sweep, operand) < 0) continue;
            const bool reads = operand == sweep_saved;
            for (const Touch& touch : touches_of(t, operand))
                if (touch.task < t && touch.task >= (reads ? last : chain[0].task) &&
                    (!reads || program_.tasks[touch.task].writes(touch.handle)))
                    return false;
        }
        const TilePtr& result = sweep.tiles[handle_of_operand(sweep, sweep_result)];
        for (size_t i = 0; i + 1 < chain.size(); ++i)
            program_.tasks[chain[i].task].tiles[chain[i].handle] = result;
        rewrite(program_.tasks[last], sweep, *fusion);
        return true;
    }

private:
    const std::vector<Touch>& touches_of(uint32_t t, int operand) const {
        return touches_[accesses_.begin(t)[handle_of_operand(program_.tasks[t], operand)].tile];
    }

    // A product without an epilogue that writes the tile or adds to it.
    bool is_plain_product(const Touch& touch) const {
        const Task& task = program_.tasks[touch.task];
        if (task.arg.kernel->name != "gemm" || handle_of_operand(task, 0) != touch.handle)
            return false;
        nn_gemm_params params;
        std::memcpy(&params, task.arg.params, sizeof params);
        return params.epilogue == 0 && !params.wide && params.batch == 1;
    }

    static void rewrite(Task& product, const Task& sweep, const Fusion& fusion) {
        product.arg.kernel = find_kernel(fusion.product);
        nn_gemm_params params;
        std::memcpy(&params, product.arg.params, sizeof params);
        params.epilogue = fusion.epilogue;
        std::memcpy(product.arg.params, &params, sizeof params);
        product.arg.operands = 3;
        for (int operand : {sweep_sums, sweep_saved}) {
            const int handle = handle_of_operand(sweep, operand);
            product.arg.buffer_of[product.arg.operands++] =
                handle < 0 ? -1 : int8_t(product.handles);
            if (handle < 0) continue;
            product.arg.bytes += float(sweep.tiles[handle]->bytes);
            product.add_tile(sweep.tiles[handle], sweep.modes[handle]);
        }
    }

    Program& program_;
    const Accesses accesses_;  // of the tasks before fusion
    const Touches touches_;
    std::vector<TilePtr> outputs_;  // sorted
};

}  // namespace

void fuse_epilogues(Program& program) {
    std::vector<char> kept(program.tasks.size(), 1);
    Fuser fuser(program);
    for (uint32_t t = 0; t < kept.size(); ++t) kept[t] = !fuser.fuse(t);
    program.keep_tasks(kept);
}

}  // namespace nn
