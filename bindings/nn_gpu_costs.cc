// The C API of GPU budgets: what the tasks of a step cost on a described GPU, by count.
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "bindings/handles.h"
#include "bindings/nn_plan.h"
#include "engine/graph/cost.h"
#include "engine/machine/description.h"
#include "engine/schedule/pipeline.h"

using namespace nn;
using namespace nn::capi;

namespace {

// A GPU reads the value that another one wrote last, and keeps it until the next change.
double bytes_between_gpus(const Program& program) {
    struct State {
        int writer = -1;
        uint64_t valid = 0;  // a bit for each GPU
    };
    std::unordered_map<const Tile*, State> states;
    double out = 0;
    const auto run = [&](bool counts) {
        for (const Task& task : program.tasks)
            for (int i = 0; i < task.handles; ++i) {
                State& state = states[task.tiles[i].get()];
                const uint64_t here = uint64_t(1) << (task.gpu & 63);
                const bool moves =
                    task.modes[i] != Mode::write && state.writer >= 0 && !(state.valid & here);
                if (counts && moves) out += double(task.tiles[i]->bytes);
                state.valid |= here;
                if (task.writes(i)) state = {task.gpu, here};
            }
    };
    run(false);  // which GPUs hold the weights at the beginning of a step
    run(true);
    return out;
}

nn_gpu_step_t submission(const Program& program, int gpus) {
    const auto trial = trial_of(program);
    trial->microbatches.clear(), trial->backwards.clear(), trial->scalar_steps.clear();
    // In a plan, the ids of tokens are no inputs, but tensors that exist before the step.
    for (const Tensor& tensor : program.lasting)
        if (!is_float(tensor.dtype()) && program.inputs.empty()) trial->inputs.push_back(tensor);
    int64_t memory = 0;
    for (const MemoryNode& node : machine().nodes)
        if (node.kind == NodeKind::gpu) memory = node.bytes;
    const std::vector<TaskGroup> groups = prepare_for_gpus(*trial, gpus, memory * 9 / 10);
    nn_gpu_step_t out{0, 0, bytes_between_gpus(*trial)};
    for (const TaskGroup& group : groups) {
        ++out.groups;
        out.freed += int64_t(group.dies_after.size());
    }
    return out;
}

}  // namespace

int nn_program_gpu_costs(const nn_ref* program, nn_kernel_cost_t* out, int32_t* count,
                         nn_gpu_step_t* step) {
    return guard([&] {
        const Program& p = program_of(program).program();
        const WorkerGroup* const gpu = machine().group(Device::cuda);
        if (!gpu || !gpu->rates.known() || gpu->rates.bf16 <= 0)
            fail(
                "a budget needs a described GPU: nn.machine{gpus=1, gpu_gflops=..., "
                "gpu_bandwidth=...}");
        std::map<std::string, nn_kernel_cost_t> costs;
        for (size_t t = 0; t < p.tasks.size(); ++t) {
            const TaskArg& arg = p.tasks[t].arg;
            nn_kernel_cost_t& cost = costs[arg.kernel->name];
            cost.kernel = arg.kernel->name.c_str();
            ++cost.tasks;
            cost.flops += double(arg.flops), cost.bytes += double(arg.bytes);
            cost.seconds += seconds_of(arg, gpu->rates) - gpu->rates.start;
        }
        if (int(costs.size()) > given(count, "count"))
            fail("room for %d kernels, not %zu", *count, costs.size());
        *count = 0;
        for (const auto& [name, cost] : costs) out[(*count)++] = cost;
        given(step, "step") = submission(p, machine().count(Device::cuda));
    });
}
