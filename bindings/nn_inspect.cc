// The C API, queries: versions, the machine, ops, kernels, measurements. Also single tasks, and
// numbers of any dtype in host memory.
#include <dlfcn.h>
#include <luajit.h>

#include <algorithm>

#include "bindings/handles.h"
#include "engine/machine/description.h"
#include "engine/plan/measure.h"
#include "engine/rules/rules.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit.h"
#include "engine/workers/handles.h"
#include "engine/workers/workers.h"
#include "kernels/blas.h"
#include "kernels/cuda/device.h"
#include "kernels/params/fill.h"
#include "kernels/products/products.h"
#include "nn_version.h"

using namespace nn;
using namespace nn::capi;

namespace {

const Kernel* kernel_at(int32_t index) {
    static const std::vector<const Kernel*> list = all_kernels();
    return element(list, index, "kernel");
}

Dtype dtype_of(int32_t number) {
    if (number < 0 || number >= dtype_count)
        fail("dtype %d is outside [0, %d)", number, dtype_count);
    return Dtype(number);
}

std::string cuda_description() {
#if defined(NN_CUDA)
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) return "built in, no driver on this machine";
    dlclose(driver);
    try {
        return "built in, driver found, " + cuda::blas_description() + ", " +
               cuda::cudnn_description();
    } catch (const std::exception& e) {
        return format("built in, driver found; %s", e.what());
    }
#else
    return "not built in";
#endif
}

Where where_of(int32_t where) {
    if (where < 0 || where > 2) fail("task: where is %d; 0 is anywhere, 1 CPU, 2 GPU", where);
    return Where(where);
}

// Checks an operand of a script's task and adds it; `changed` collects the written tensors.
void use_operand(TaskBuilder& builder, const char* name, const OperandDecl& declared,
                 const nn_task_operand& use, std::vector<Tensor>& changed) {
    const char* const operand = declared.name.c_str();
    if (use.tensor.index == 0) {
        if (!declared.optional) fail("task %s: operand '%s' is missing", name, operand);
        builder.use(absent());
        return;
    }
    const Tensor t = tensor_of(use.tensor, name);
    const bool reads = declared.mode == Mode::read;
    if (t.stale())
        fail("task %s: %s is a view of a tensor that was changed in place since", name, operand);
    if (use.tile < 0 || use.tile >= t.tiles())
        fail("task %s: %s has tiles 1 to %lld", name, operand, (long long)t.tiles());
    if (use.mode < 0 || use.mode > 2 || (use.mode == 0) != reads)
        fail("task %s: bad access to %s, which it %s", name, operand, reads ? "reads" : "writes");
    if (!reads && t.is_view()) fail("task %s: writes to %s, which is a view", name, operand);
    builder.use({t.tile(use.tile), Mode(use.mode)});
    if (!reads) changed.push_back(t);
}

// Converts numbers in host memory.
void cast(const void* in, Dtype from, int64_t count, void* out, Dtype to) {
    if (count < 0) fail("copy: %lld numbers", (long long)count);
    static const KernelFn kernel = find_kernel("cast")->on(Device::cpu);
    void* const operands[] = {out, const_cast<void*>(in)};
    const nn_cast_params params{count, int32_t(from)};
    kernel({operands, &params, to, nullptr, nullptr});
}

}  // namespace

extern "C" {

const char* nn_version(void) {
    static std::string text;
    if (guard([] {
            const auto text_or_error = [](std::string (*describe)()) {
                try {
                    return describe();
                } catch (const std::exception& e) {
                    return std::string(e.what());
                }
            };
            text = format("nnlua %s (%s)\n%s\nStarPU %s\nBLAS %s, kernels %s\nproducts %s\nCUDA %s",
                          NN_VERSION, NN_VERSION_GIT, LUAJIT_VERSION, starpu_version().c_str(),
                          text_or_error(blas::description).c_str(), cpu_target().name,
                          text_or_error(products::description).c_str(), cuda_description().c_str());
        }) != NN_OK)
        return nn_error();
    return text.c_str();
}

int nn_machine_describe(const char* text) {
    return guard([&] { describe_machine(&given(text, "text")); });
}

int nn_machine_info(nn_machine_info_t* out) {
    return guard([&] {
        const Machine& m = machine();
        nn_machine_info_t& info = given(out, "out");
        info.ranks = m.ranks, info.described = machine_is_described();
        info.cpus = m.count(Device::cpu), info.gpus = m.count(Device::cuda);
        info.ram = m.bytes(NodeKind::ram), info.disk = m.bytes(NodeKind::disk);
        info.gpu_memory = m.bytes(NodeKind::gpu);
    });
}

int nn_product_rate(int64_t size, int32_t dtype, double* flops_per_second) {
    return guard([&] {
        if (size < 1 || size > 1 << 15)
            fail("products of size %lld, not 1 to 32768", (long long)size);
        if (dtype != int(Dtype::f32) && dtype != int(Dtype::bf16))
            fail("the rate of products of dtype %d; f32 and bf16 are possible", dtype);
        given(flops_per_second, "flops_per_second") = product_rate(size, Dtype(dtype));
    });
}

int nn_core_rates(double* f32, double* bf16) {
    return guard([&] {
        const products::Choice& choice = products::choice();
        given(f32, "f32") = choice.f32_gflops;
        given(bf16, "bf16") = choice.bf16_gflops;
    });
}

int nn_op_count(void) { return int(all_ops().size()); }

int nn_op_info(int32_t index, nn_op_info_t* out) {
    return guard([&] {
        const Op& op = op_at(index);
        nn_op_info_t& info = given(out, "out");
        info.name = op.name.c_str(), info.doc = op.doc.c_str();
        info.category = op.category.c_str(), info.no_gradient = op.no_gradient.c_str();
        info.gradient_of = op.gradient_of.c_str(), info.gradient_in = op.gradient_in.c_str();
        info.mask = op.mask.c_str(), info.source = op.source.c_str();
        info.inputs = int32_t(op.inputs.size()), info.outputs = int32_t(op.outputs.size());
        info.attributes = int32_t(op.attributes.size()), info.samples = int32_t(op.samples.size());
        info.kernels = int32_t(kernels_of(op).size());
        info.changes_parameters = op.changes_parameters;
    });
}

int nn_op_input(int32_t op, int32_t i, nn_op_input_t* out) {
    return guard([&] {
        const Input& input = element(op_at(op).inputs, i, "input");
        given(out, "out") = {input.name.c_str(), input.gradient_in.c_str(),
                             input.optional,     input.number,
                             input.list,         input.in_place};
    });
}

int nn_op_output(int32_t op, int32_t i, nn_op_output_t* out) {
    return guard([&] {
        const Output& output = element(op_at(op).outputs, i, "output");
        given(out, "out") = {output.name.c_str(), output.optional, output.differentiable};
    });
}

int nn_op_attribute(int32_t op, int32_t i, nn_attribute_info* out) {
    return guard([&] {
        const Attribute& a = element(op_at(op).attributes, i, "attribute");
        given(out, "out") = {a.name.c_str(), a.kind.c_str(), a.default_value.c_str(),
                             a.doc.c_str()};
    });
}

int nn_op_sample(int32_t op, int32_t i, const char** text) {
    return guard([&] { given(text, "text") = element(op_at(op).samples, i, "sample").c_str(); });
}

int nn_tensor_nodes(const nn_ref* tensor, int64_t* bytes, int32_t* count) {
    return guard([&] {
        const Tensor& t = tensor_of(given(tensor, "tensor"));
        given(bytes, "bytes");
        *count = std::clamp(int(given(count, "count")), 0, memory_nodes());
        for (int node = 0; node < *count; ++node) {
            bytes[node] = 0;
            for (int64_t i = 0; i < t.tiles(); ++i)
                if (is_valid_on(*t.tile(i), node)) bytes[node] += int64_t(t.tile(i)->bytes);
        }
    });
}

int nn_node_memory(int64_t* used, int64_t* limit, int32_t* count) {
    return guard([&] {
        given(used, "used"), given(limit, "limit");
        *count = std::clamp(int(given(count, "count")), 0, memory_nodes());
        for (int node = 0; node < *count; ++node) {
            const NodeMemory memory = node_memory(node);
            used[node] = memory.used, limit[node] = memory.limit;
        }
    });
}
int nn_bytes_moved(int64_t* bytes) { return put(bytes, "bytes", bytes_moved); }

int nn_node_name(int32_t node, const char** name) {
    static std::string text;
    return guard([&] {
        given(name, "name") = nullptr;
        text = node_name(node);
        *name = text.c_str();
    });
}

int nn_op_kernel(int32_t op, int32_t i, const char** name) {
    return guard([&] {
        const std::vector<const Kernel*> kernels = kernels_of(op_at(op));
        given(name, "name") = element(kernels, i, "kernel")->name.c_str();
    });
}

int nn_kernel_count(void) { return int(all_kernels().size()); }

int nn_kernel_info(int32_t index, nn_kernel_info_t* out) {
    return guard([&] {
        const Kernel* k = kernel_at(index);
        given(out, "out") = {k->name.c_str(), k->params_type.c_str(), int64_t(k->params_size),
                             int32_t(k->operands.size()), k->on(Device::cuda) != nullptr};
    });
}

int nn_kernel_operand(int32_t kernel, int32_t i, nn_operand_info* out) {
    return guard([&] {
        const OperandDecl& o = element(kernel_at(kernel)->operands, i, "operand");
        given(out, "out") = {o.name.c_str(), int32_t(o.mode), o.optional};
    });
}

int nn_stats(nn_stats_t* out) {
    return guard([&] {
        const Stats& s = stats();
        given(out, "out") = {s.tasks,          s.replayed_tasks, s.replay_seconds,
                             s.starpu_seconds, s.earlier_tasks,  unfinished_tasks()};
    });
}

int nn_run_tasks_on(int32_t where) {
    return guard([&] {
        run_tasks_on(where == int32_t(Where::automatic) ? Where::automatic : where_of(where));
    });
}

int nn_task(const char* name, int32_t dtype, const nn_task_operand* operands, int32_t n_operands,
            const void* params, int64_t params_size, int32_t priority, int32_t where) {
    return guard_pending([&] {
        const Where device = where_of(where);
        TaskBuilder builder = task(&given(name, "kernel"), dtype_of(dtype));
        const Kernel* kernel = find_kernel(name);
        if (n_operands != int32_t(kernel->operands.size()) || !operands)
            fail("task %s: %d operands given, it has %zu", name, n_operands,
                 kernel->operands.size());
        std::vector<Tensor> changed;
        for (int32_t i = 0; i < n_operands; ++i)
            use_operand(builder, name, kernel->operands[size_t(i)], operands[i], changed);
        if (params_size < 0)
            fail("task %s: parameters of %lld bytes", name, (long long)params_size);
        builder.raw_params(&given(static_cast<const char*>(params), "params"), size_t(params_size));
        builder.priority(priority).where(device).emit();
        for (const Tensor& t : changed) t.changed();
    });
}

int nn_copy_f64(const void* in, int32_t dtype, int64_t count, double* out) {
    return guard([&] {
        given(static_cast<const char*>(in), "in"), given(out, "out");
        cast(in, dtype_of(dtype), count, out, Dtype::f64);
    });
}

int nn_copy_from_f64(const double* in, int32_t number, int64_t count, void* out) {
    return guard([&] {
        given(in, "in"), given(static_cast<char*>(out), "out");
        const Dtype dtype = dtype_of(number);
        for (int64_t i = 0; i < count; ++i)
            if (dtype != Dtype::boolean && !representable(in[i], dtype))
                fail("number %lld is %g, which dtype %s cannot hold", (long long)i + 1, in[i],
                     dtype_name(dtype));
        cast(in, Dtype::f64, count, out, dtype);
    });
}

}  // extern "C"
