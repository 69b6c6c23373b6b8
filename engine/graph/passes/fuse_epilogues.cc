// Fuses the backward pass of an activation into the matrix product that computes the gradient.
// Instead of a separate task (a sweep) over the result of the product, the product's epilogue
// multiplies by the activation's slope while the result is in cache, and sums the columns for the
// gradient of a bias. The epilogue of a gated linear unit writes the gradients of gate and up, so
// the product writes the left half of rows that are twice as long.
//
// The forward pass of a gated linear unit stays a sweep. It needs columns j and j + n of a product,
// which are in different blocks: the weights would have to interleave gate and up, or all products
// to compute columns in order. Both halves must be stored for the backward pass anyway, so an
// epilogue would save one read of them, at most half of a sweep that takes 0.5 % of a step.
#include <algorithm>

#include "engine/graph/passes/passes.h"
#include "kernels/params/gelu.h"
#include "kernels/params/gemm.h"
#include "kernels/params/glu.h"

namespace nn {
namespace {

// Replaces the sweep (result, sums?, gradient, saved) by an epilogue of the product (c, a, b,
// sums?, saved).
struct Fusion {
    const char* product;  // nullptr: the task is no such sweep
    int32_t epilogue;
    int64_t cols, ld;  // of the gradient; between the rows of the result
};
enum { sweep_result, sweep_sums, sweep_gradient, sweep_saved };

void set_params(Task& task, const nn_gemm_params& p) { std::memcpy(task.arg.params, &p, sizeof p); }

// Another activation needs a case here. Epilogues overwrite the sums, so the sweep must do so too.
Fusion fusion_of(const Task& sweep) {
    if (sweep.arg.kernel->name == "gelu_bias_backward") {
        const auto p = params_of<nn_gelu_bias_backward_params>(sweep.arg);
        if (p.first) return {"gemm_dgelu", 3, p.cols, p.cols};
    }
    if (sweep.arg.kernel->name == "glu_backward") {
        const auto p = params_of<nn_glu_params>(sweep.arg);
        if (p.first) return {"gemm_dglu", 4 + p.activation, p.cols, 2 * p.cols};
    }
    return {};
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
        const Fusion fusion = fusion_of(sweep);
        if (!fusion.product || sweep.where != Where::anywhere) return false;
        const std::vector<Touch>& chain = touches_of(t, sweep_gradient);
        const TilePtr& gradient = sweep.tiles[handle_of_operand(sweep, sweep_gradient)];
        if (chain.size() < 2 || chain.back().task != t || gradient->persists() ||
            std::binary_search(outputs_.begin(), outputs_.end(), gradient))
            return false;
        const uint32_t last = chain[chain.size() - 2].task;
        for (size_t i = 0; i + 1 < chain.size(); ++i)
            if (!is_plain_product(chain[i], fusion.cols)) return false;
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
        for (size_t i = 0; i + 1 < chain.size(); ++i) {
            Task& product = program_.tasks[chain[i].task];
            product.tiles[chain[i].handle] = result;
            auto params = params_of<nn_gemm_params>(product.arg);
            params.ldc = fusion.ld;
            set_params(product, params);
        }
        rewrite(program_.tasks[last], sweep, fusion);
        return true;
    }

private:
    const std::vector<Touch>& touches_of(uint32_t t, int operand) const {
        return touches_[accesses_.begin(t)[handle_of_operand(program_.tasks[t], operand)].tile];
    }

    // A product without an epilogue that writes the tile or adds to it. Its rows may have another
    // length than `cols` if the tile is reshaped in between; then the epilogue would use others.
    bool is_plain_product(const Touch& touch, int64_t cols) const {
        const Task& task = program_.tasks[touch.task];
        if (task.arg.kernel->name != "gemm" || handle_of_operand(task, 0) != touch.handle)
            return false;
        const auto params = params_of<nn_gemm_params>(task.arg);
        return params.epilogue == 0 && !params.wide && params.batch == 1 && params.n == cols &&
               params.ldc == cols;
    }

    static void rewrite(Task& product, const Task& sweep, const Fusion& fusion) {
        product.arg.kernel = find_kernel(fusion.product);
        auto params = params_of<nn_gemm_params>(product.arg);
        params.epilogue = fusion.epilogue;
        set_params(product, params);
        product.arg.operands = 3;
        for (int operand : {sweep_sums, sweep_saved}) {
            const int handle = handle_of_operand(sweep, operand);
            product.arg.buffer_of[product.arg.operands++] =
                handle < 0 ? -1 : add_tile(product, sweep.tiles[handle], sweep.modes[handle]);
        }
        const auto bytes_of = [&](int operand) {
            return float(sweep.tiles[handle_of_operand(sweep, operand)]->bytes);
        };
        product.arg.bytes += bytes_of(sweep_result) - bytes_of(sweep_gradient);
    }

    // The handle of a tile that the task also uses from now on; it may read it already.
    static int16_t add_tile(Task& task, const TilePtr& tile, Mode mode) {
        for (int handle = 0; handle < task.handles; ++handle)
            if (task.tiles[handle] == tile) return int16_t(handle);
        task.arg.bytes += float(tile->bytes);
        task.add_tile(tile, mode);
        return int16_t(task.handles - 1);
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
