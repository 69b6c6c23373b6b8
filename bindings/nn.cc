// The C API: handles, exceptions turned into statuses, and nothing else. Handles are slots of a
// table with a generation each, so that a stale one is noticed.
#include "bindings/nn.h"

#include <dlfcn.h>
#include <luajit.h>
#include <starpu.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <variant>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/op.h"
#include "engine/program.h"
#include "engine/rules.h"
#include "engine/runtime.h"
#include "kernels/blas.h"
#include "nn_version.h"

using namespace nn;

namespace {

struct Entry {
    int32_t generation = 1;
    std::variant<std::monostate, Tensor, std::shared_ptr<Program>> value;
};

struct Handles {
    std::vector<Entry> entries{Entry{}};  // slot 0 stays empty: it means "absent"
    std::vector<int32_t> free;
    std::vector<std::vector<nn_ref>> scopes;
    int64_t tensors = 0;
};

// Never destroyed: finalizers may come after everything else.
Handles& handles() {
    static Handles* const instance = new Handles;
    return *instance;
}

thread_local std::string last_error;

template <class F> int guard(F body) noexcept {
    try {
        body();
        return NN_OK;
    } catch (const Interrupted& e) {
        last_error = e.what();
        return NN_INTERRUPTED;
    } catch (const OutOfMemory& e) {
        last_error = e.what();
        return NN_OUT_OF_MEMORY;
    } catch (const std::bad_alloc&) {
        last_error = "out of memory";
        return NN_OUT_OF_MEMORY;
    } catch (const std::exception& e) {
        last_error = e.what();
        return NN_ERROR;
    } catch (...) {
        last_error = "an unknown error";
        return NN_ERROR;
    }
}
// For calls that touch tensors: an error from an earlier kernel, or Ctrl-C, comes first.
template <class F> int guard_pending(F body) noexcept {
    return guard([&] {
        check_pending();
        body();
    });
}

template <class P> P& given(P* pointer, const char* what) {
    if (!pointer) fail("%s is NULL", what);
    return *pointer;
}

template <class T> nn_ref new_ref(T value) {
    Handles& h = handles();
    int32_t slot;
    if (h.free.empty()) {
        slot = int32_t(h.entries.size());
        h.entries.emplace_back();
    } else {
        slot = h.free.back();
        h.free.pop_back();
    }
    Entry& entry = h.entries[size_t(slot)];
    entry.value = std::move(value);
    const nn_ref ref{slot, entry.generation};
    if (std::holds_alternative<Tensor>(entry.value)) {
        ++h.tensors;
        if (!h.scopes.empty()) h.scopes.back().push_back(ref);
    }
    return ref;
}

Entry* find_entry(nn_ref ref) {
    Handles& h = handles();
    if (ref.slot <= 0 || size_t(ref.slot) >= h.entries.size()) return nullptr;
    Entry& entry = h.entries[size_t(ref.slot)];
    if (entry.generation != ref.generation || std::holds_alternative<std::monostate>(entry.value))
        return nullptr;
    return &entry;
}

Tensor& tensor_of(const nn_ref& ref, const char* what = "tensor") {
    Entry* entry = find_entry(ref);
    Tensor* tensor = entry ? std::get_if<Tensor>(&entry->value) : nullptr;
    if (!tensor)
        fail("%s: this handle is not a live tensor (it was freed, or its scope has ended)", what);
    return *tensor;
}

Program& program_of(const nn_ref* ref) {
    Entry* entry = find_entry(given(ref, "program"));
    auto* program = entry ? std::get_if<std::shared_ptr<Program>>(&entry->value) : nullptr;
    if (!program) fail("this handle is not a live program");
    return **program;
}

void release(nn_ref ref) {
    Entry* entry = find_entry(ref);
    if (!entry) return;
    if (std::holds_alternative<Tensor>(entry->value)) --handles().tensors;
    const auto value = std::move(entry->value);  // destroyed last: the table is consistent by then
    entry->value = std::monostate{};
    ++entry->generation;
    handles().free.push_back(ref.slot);
}

std::vector<Tensor> tensors_of(const nn_ref* refs, int32_t count, const char* what) {
    if (count < 0 || (count > 0 && !refs)) fail("%s: bad list of tensors", what);
    std::vector<Tensor> out;
    for (int32_t i = 0; i < count; ++i)
        out.push_back(refs[i].slot == 0 ? Tensor() : tensor_of(refs[i], what));
    return out;
}

void put_results(const std::vector<Tensor>& results, nn_ref* outputs, int32_t room) {
    if (int32_t(results.size()) > room) fail("%zu results, room for %d", results.size(), room);
    for (size_t i = 0; i < results.size(); ++i)
        outputs[i] = results[i] ? new_ref(results[i]) : nn_ref{0, 0};
}

const Op& op_at(int32_t index) {
    static const std::vector<const Op*> list = [] {
        std::vector<const Op*> out;
        for (const auto& [name, op] : all_ops()) out.push_back(&op);
        return out;
    }();
    if (index < 0 || size_t(index) >= list.size()) fail("there is no op %d", index);
    return *list[size_t(index)];
}

const Kernel* kernel_at(int32_t index) {
    static const std::vector<const Kernel*> list = all_kernels();
    if (index < 0 || size_t(index) >= list.size()) fail("there is no kernel %d", index);
    return list[size_t(index)];
}

Value value_of(const nn_value& v) {
    Value out;
    if (v.kind < Value::none || v.kind > Value::slot)
        fail("an attribute of unknown kind %d", v.kind);
    out.kind = Value::Kind(v.kind);
    switch (out.kind) {
        case Value::none: break;
        case Value::number: out.number_value = v.number; break;
        case Value::text: out.text_value = &given(v.text, "text of an attribute"); break;
        case Value::list:
            if (v.count < 0 || v.count > 64 || (v.count > 0 && !v.list))
                fail("a list attribute of %d numbers", v.count);
            out.list_value.assign(v.list, v.list + v.count);
            break;
        case Value::slot:
            if (!(v.number >= 0 && v.number <= INT32_MAX))
                fail("there is no scalar slot %g", v.number);
            out.slot_id = int32_t(v.number);
            slot_value(out.slot_id);
            break;
    }
    return out;
}

Dtype dtype_of(int32_t number) {
    if (number < 0 || number >= dtype_count) fail("there is no dtype %d", number);
    return Dtype(number);
}

template <class T> const T& element(const std::vector<T>& list, int32_t i, const char* what) {
    if (i < 0 || size_t(i) >= list.size()) fail("there is no %s %d", what, i);
    return list[size_t(i)];
}

std::string cuda_description() {
#if defined(NN_CUDA) && defined(STARPU_USE_CUDA)
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) dlclose(driver);
    return driver ? "built in, driver found" : "built in, no driver on this machine";
#else
    return "not built in";
#endif
}

}  // namespace

extern "C" {

const char* nn_error(void) { return last_error.c_str(); }

const char* nn_version(void) {
    static std::string text;
    if (guard([] {
            std::string blas_text;
            try {
                blas_text = blas::description();
            } catch (const std::exception& e) {
                blas_text = e.what();
            }
            text = format("nnlua %s (%s)\n%s\nStarPU %s\nBLAS %s, kernels %s\nCUDA %s", NN_VERSION,
                          NN_VERSION_GIT, LUAJIT_VERSION, starpu_version().c_str(),
                          blas_text.c_str(), isa_name(machine_isa()), cuda_description().c_str());
        }) != NN_OK)
        return nn_error();
    return text.c_str();
}

int nn_configure(int32_t cpus, const char* scheduler) {
    return guard([&] {
        if (cpus < 0 || cpus > 1024) fail("devices: %d CPU workers", cpus);
        configure({cpus, scheduler ? scheduler : ""});
    });
}

int nn_workers(int32_t* cpus, int32_t* gpus) {
    return guard([&] {
        given(cpus, "cpus"), given(gpus, "gpus");
        *cpus = cpu_workers();
        *gpus = gpu_workers();
    });
}

int nn_shutdown(void) {
    return guard([] {
        abort_recording();
        const Handles& h = handles();
        for (size_t slot = 1; slot < h.entries.size(); ++slot)
            release({int32_t(slot), h.entries[slot].generation});
        shutdown();
    });
}
int nn_sync(void) { return guard_pending(wait_all); }
int nn_idle(void) { return guard(idle); }

int nn_interrupted(int32_t* flag) {
    return guard([&] { given(flag, "flag") = interrupt_requested(); });
}
int nn_clear_interrupt(void) {
    clear_interrupt();
    return NN_OK;
}
int nn_defer_interrupts(int32_t deferred) {
    defer_interrupts(deferred != 0);
    return NN_OK;
}

int nn_release(const nn_ref* ref) {
    return guard([&] {
        if (ref) release(*ref);
    });
}

int nn_tensor_info_get(const nn_ref* tensor, nn_tensor_info* out) {
    return guard([&] {
        const Tensor& t = tensor_of(given(tensor, "tensor"));
        nn_tensor_info& info = given(out, "out");
        info = {};
        info.rank = int32_t(t.rank());
        info.dtype = int32_t(t.dtype());
        for (size_t i = 0; i < t.rank(); ++i) {
            info.shape[i] = t.shape()[i];
            info.tiles[i] = t.grid().tiles(i);
        }
        info.count = t.count();
        info.bytes = t.bytes();
        info.is_view = t.is_view();
        info.temporary = t.tile(0)->recording != 0;
    });
}

int nn_read(const nn_ref* tensor, void* out, int64_t bytes) {
    return guard_pending([&] {
        const Tensor t = tensor_of(given(tensor, "tensor"));
        if (!out || bytes != t.bytes())
            fail("read: %lld bytes given for %lld", (long long)bytes, (long long)t.bytes());
        if (t.stale())
            fail("read: a view of a tensor that was changed in place since; take the view again");
        read_tensor(t, out);
        check_pending();
    });
}

int nn_write(const nn_ref* tensor, const void* in, int64_t bytes) {
    return guard_pending([&] {
        const Tensor t = tensor_of(given(tensor, "tensor"));
        if (!in || bytes != t.bytes())
            fail("write: %lld bytes given for %lld", (long long)bytes, (long long)t.bytes());
        write_tensor(t, in);
    });
}

int nn_cuts(const nn_ref* tensor, int32_t axis, int64_t* out, int32_t capacity, int32_t* count) {
    return guard([&] {
        const Tensor& t = tensor_of(given(tensor, "tensor"));
        const Cuts& cuts = element(t.grid().axes, axis, "axis");
        given(count, "count") = int32_t(cuts.size());
        for (size_t i = 0; i < cuts.size() && int32_t(i) < capacity && out; ++i) out[i] = cuts[i];
    });
}

int nn_retile(const nn_ref* tensor, const int64_t* tile, int32_t rank, nn_ref* out) {
    return guard_pending([&] {
        const Tensor t = tensor_of(given(tensor, "tensor"));
        given(out, "out");
        if (rank != int32_t(t.rank()) || (rank > 0 && !tile))
            fail("retile: %d tile sizes for %zu axes", rank, t.rank());
        Grid grid;
        for (int32_t i = 0; i < rank; ++i) {
            if (tile[i] < 0) fail("retile: a tile size of %lld", (long long)tile[i]);
            grid.axes.push_back(tile[i] ? cut_every(t.dim(i), tile[i]) : whole(t.dim(i)));
        }
        *out = new_ref(retile(t, grid));
    });
}

int nn_tile_size(const char* axis, int64_t size) {
    return guard([&] {
        if (size < 0)
            fail("tiles: %s is %lld; a size of at least 1, or 0 for automatic",
                 &given(axis, "axis"), (long long)size);
        set_tile_size(&given(axis, "axis"), size);
    });
}

int nn_tensors_alive(int64_t* count) {
    return guard([&] { given(count, "count") = handles().tensors; });
}

int nn_op_count(void) { return int(all_ops().size()); }

int nn_op_info(int32_t index, nn_op_info_t* out) {
    return guard([&] {
        const Op& op = op_at(index);
        given(out, "out") = {op.name.c_str(),           op.doc.c_str(),
                             op.category.c_str(),       op.no_gradient.c_str(),
                             int32_t(op.inputs.size()), int32_t(op.attributes.size()),
                             int32_t(op.samples.size())};
    });
}

int nn_op_input(int32_t op, int32_t i, const char** name) {
    return guard([&] { given(name, "name") = element(op_at(op).inputs, i, "input").c_str(); });
}

int nn_op_attribute(int32_t op, int32_t i, nn_attribute_info* out) {
    return guard([&] {
        const Attribute& a = element(op_at(op).attributes, i, "attribute");
        given(out, "out") = {a.name.c_str(), a.kind.c_str(), a.fallback.c_str(), a.doc.c_str()};
    });
}

int nn_op_sample(int32_t op, int32_t i, const char** text) {
    return guard([&] { given(text, "text") = element(op_at(op).samples, i, "sample").c_str(); });
}

int nn_apply(int32_t index, const nn_ref* inputs, int32_t n_inputs, const nn_value* attributes,
             int32_t n_attributes, nn_ref* outputs, int32_t* n_outputs) {
    return guard_pending([&] {
        const Op& op = op_at(index);
        given(outputs, "outputs"), given(n_outputs, "n_outputs");
        if (n_attributes < 0 || size_t(n_attributes) > op.attributes.size() ||
            (n_attributes > 0 && !attributes))
            fail("%s: %d attributes given", op.name.c_str(), n_attributes);
        std::vector<Value> values;
        for (int32_t i = 0; i < n_attributes; ++i) values.push_back(value_of(attributes[i]));
        const std::vector<Tensor> results =
            apply(op, tensors_of(inputs, n_inputs, op.name.c_str()), std::move(values));
        put_results(results, outputs, *n_outputs);
        *n_outputs = int32_t(results.size());
    });
}

int nn_record_begin(void) { return guard_pending(begin_recording); }

int nn_record_input(const nn_ref* like, nn_ref* out) {
    return guard([&] {
        if (!recording_number()) fail("compile: no recording is under way");
        const Tensor& t = tensor_of(given(like, "like"));
        given(out, "out");
        Tensor input(t.grid(), t.dtype());
        for (int64_t i = 0; i < input.tiles(); ++i) input.tile(i)->set_recorded();
        *out = new_ref(input);
    });
}

int nn_record_abort(void) {
    return guard([] { abort_recording(); });
}
int nn_recording(void) { return recording_number() != 0; }

int nn_record_end(const nn_ref* inputs, int32_t n_inputs, const nn_ref* outputs, int32_t n_outputs,
                  nn_ref* program) {
    return guard([&] {
        const std::vector<Tensor> in = tensors_of(inputs, n_inputs, "compile"),
                                  out = tensors_of(outputs, n_outputs, "compile");
        given(program, "program") = {0, 0};
        std::shared_ptr<Program> recorded = end_recording();
        recorded->finish(in, out);
        *program = new_ref(std::move(recorded));
    });
}

int nn_program_run(const nn_ref* program, const nn_ref* inputs, int32_t n_inputs, nn_ref* outputs,
                   int32_t n_outputs) {
    return guard_pending([&] {
        Program& p = program_of(program);
        if (int64_t(p.outputs()) > n_outputs || (p.outputs() > 0 && !outputs))
            fail("compiled function: %zu results, room for %d", p.outputs(),
                 outputs ? n_outputs : 0);
        put_results(p.run(tensors_of(inputs, n_inputs, "compiled function")), outputs, n_outputs);
    });
}

int nn_program_info(const nn_ref* program, nn_program_info_t* out) {
    return guard([&] {
        const ProgramInfo info = program_of(program).info();
        given(out, "out") = {info.tasks, info.tiles, info.flops, info.persistent_bytes,
                             info.peak_bytes};
    });
}

int nn_slot_new(double value, int32_t* slot) {
    return guard([&] {
        given(slot, "slot");
        *slot = new_slot(value);
    });
}
int nn_slot_free(int32_t slot) {
    return guard([&] { free_slot(slot); });
}
int nn_slot_set(int32_t slot, double value) {
    return guard([&] { set_slot(slot, value); });
}
int nn_slot_get(int32_t slot, double* value) {
    return guard([&] { given(value, "value") = slot_value(slot); });
}
int nn_slot_add(int32_t slot, double delta) {
    return guard([&] {
        slot_value(slot);
        if (Program* program = recording_program())
            program->add_to_slot(slot, delta);
        else
            set_slot(slot, slot_value(slot) + delta);
    });
}

int nn_scope_begin(void) {
    return guard([] { handles().scopes.emplace_back(); });
}

int nn_scope_end(const nn_ref* keep, int32_t n_keep) {
    return guard([&] {
        Handles& h = handles();
        if (h.scopes.empty()) fail("scope: none is open");
        if (n_keep < 0 || (n_keep > 0 && !keep)) fail("scope: bad list of tensors to keep");
        const std::vector<nn_ref> made = std::move(h.scopes.back());
        h.scopes.pop_back();
        for (const nn_ref& ref : made) {
            bool kept = false;
            for (int32_t i = 0; i < n_keep; ++i)
                kept |= keep[i].slot == ref.slot && keep[i].generation == ref.generation;
            if (!kept)
                release(ref);
            else if (!h.scopes.empty() && find_entry(ref))
                h.scopes.back().push_back(ref);
        }
    });
}

int nn_memory(nn_memory_info_t* out) {
    return guard([&] {
        if (!memory_info().budget) set_budget(0);
        const MemoryInfo m = memory_info();
        given(out, "out") = {m.budget, m.in_use, m.cached, m.peak, m.tensors, default_budget()};
    });
}
int nn_memory_budget(int64_t bytes) {
    return guard([&] {
        if (bytes < 0) fail("memory budget: %lld bytes", (long long)bytes);
        set_budget(bytes);
    });
}
int nn_reset_peak(void) { return guard(reset_peak); }
int nn_seed(uint64_t seed) {
    return guard([&] { seed_random(seed); });
}
int nn_random_state(uint64_t* seed, uint64_t* counter) {
    return guard([&] {
        given(seed, "seed"), given(counter, "counter");
        *seed = random_seed();
        *counter = random_counter();
    });
}
int nn_set_random_counter(uint64_t counter) {
    return guard([&] { set_random_counter(counter); });
}
int nn_next_random(int64_t* counter) {
    return guard([&] {
        given(counter, "counter");
        *counter = int64_t(next_random());
    });
}

int nn_kernel_count(void) { return int(all_kernels().size()); }

int nn_kernel_info(int32_t index, nn_kernel_info_t* out) {
    return guard([&] {
        const Kernel* k = kernel_at(index);
        given(out, "out") = {k->name.c_str(), k->params_type.c_str(), int64_t(k->params_size),
                             int32_t(k->operands.size()), k->cuda != nullptr};
    });
}

int nn_kernel_operand(int32_t kernel, int32_t i, nn_operand_info* out) {
    return guard([&] {
        const OperandDecl& o = element(kernel_at(kernel)->operands, i, "operand");
        given(out, "out") = {o.name.c_str(), int32_t(o.mode), o.optional};
    });
}

int nn_kernel_stat(int32_t kernel, nn_kernel_stat_t* out) {
    return guard([&] {
        const KernelStat s = kernel_stat(kernel_at(kernel));
        given(out, "out") = {s.calls, s.seconds, s.flops, s.bytes};
    });
}

int nn_profile(int32_t enabled) {
    return guard([&] {
        wait_all();
        enable_profile(enabled != 0);
        mutable_stats() = {};
    });
}

int nn_stats(nn_stats_t* out) {
    return guard([&] {
        const RuntimeStats s = runtime_stats();
        given(out, "out") = {s.tasks, s.replayed_tasks, s.replay_seconds, s.starpu_seconds};
    });
}

int nn_task(const char* name, int32_t dtype, const nn_task_operand* operands, int32_t n_operands,
            const void* params, int64_t params_size, int32_t priority, int32_t where) {
    return guard_pending([&] {
        if (where < 0 || where > 2) fail("task: where is %d; 0 is anywhere, 1 CPU, 2 GPU", where);
        TaskBuilder builder = task(&given(name, "kernel"), dtype_of(dtype));
        const Kernel* kernel = find_kernel(name);
        if (n_operands != int32_t(kernel->operands.size()) || !operands)
            fail("task %s: %d operands given, it has %zu", name, n_operands,
                 kernel->operands.size());
        std::vector<Tensor> changed;
        for (int32_t i = 0; i < n_operands; ++i) {
            const OperandDecl& declared = kernel->operands[size_t(i)];
            if (operands[i].tensor.slot == 0) {
                if (!declared.optional)
                    fail("task %s: operand '%s' is missing", name, declared.name.c_str());
                builder.use(absent());
                continue;
            }
            const Tensor t = tensor_of(operands[i].tensor, name);
            if (operands[i].tile < 0 || operands[i].tile >= t.tiles())
                fail("task %s: %s has tiles 1 to %lld", name, declared.name.c_str(),
                     (long long)t.tiles());
            if (operands[i].mode < 0 || operands[i].mode > 2 ||
                (operands[i].mode == 0) != (declared.mode == Mode::read))
                fail("task %s: bad access to %s, which it %s", name, declared.name.c_str(),
                     declared.mode == Mode::read ? "reads" : "writes");
            builder.use({t.tile(operands[i].tile), Mode(operands[i].mode)});
            if (operands[i].mode != 0) {
                if (t.is_view())
                    fail("task %s: writes to %s, which is a view", name, declared.name.c_str());
                changed.push_back(t);
            }
        }
        if (params_size < 0)
            fail("task %s: parameters of %lld bytes", name, (long long)params_size);
        builder.raw_params(&given(static_cast<const char*>(params), "params"), size_t(params_size));
        builder.priority(priority)
            .where(where == 1   ? STARPU_CPU
                   : where == 2 ? STARPU_CUDA
                                : 0)
            .emit();
        for (const Tensor& t : changed) t.changed();
    });
}

int nn_copy_f64(const void* in, int32_t dtype, int64_t count, double* out) {
    return guard([&] {
        given(static_cast<const char*>(in), "in"), given(out, "out"), dtype_of(dtype);
        for (int64_t i = 0; i < count; ++i) switch (dtype_of(dtype)) {
                case Dtype::f32: out[i] = double(static_cast<const float*>(in)[i]); break;
                case Dtype::f64: out[i] = static_cast<const double*>(in)[i]; break;
                case Dtype::i32: out[i] = static_cast<const int32_t*>(in)[i]; break;
                case Dtype::i64: out[i] = double(static_cast<const int64_t*>(in)[i]); break;
                case Dtype::bf16: {
                    const uint32_t bits = uint32_t(static_cast<const uint16_t*>(in)[i]) << 16;
                    float value;
                    std::memcpy(&value, &bits, 4);
                    out[i] = double(value);
                    break;
                }
                default: out[i] = static_cast<const uint8_t*>(in)[i];
            }
    });
}

int nn_copy_from_f64(const double* in, int32_t dtype, int64_t count, void* out) {
    return guard([&] {
        given(in, "in"), given(static_cast<char*>(out), "out"), dtype_of(dtype);
        for (int64_t i = 0; i < count; ++i) switch (dtype_of(dtype)) {
                case Dtype::f32: static_cast<float*>(out)[i] = float(in[i]); break;
                case Dtype::f64: static_cast<double*>(out)[i] = in[i]; break;
                case Dtype::i32: static_cast<int32_t*>(out)[i] = int32_t(in[i]); break;
                case Dtype::i64: static_cast<int64_t*>(out)[i] = int64_t(in[i]); break;
                case Dtype::bf16: {
                    const float value = float(in[i]);
                    uint32_t bits;
                    std::memcpy(&bits, &value, 4);
                    static_cast<uint16_t*>(out)[i] =
                        std::isnan(value) ? uint16_t((bits >> 16) | 0x40)
                                          : uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
                    break;
                }
                default:
                    static_cast<uint8_t*>(out)[i] =
                        dtype_of(dtype) == Dtype::boolean ? in[i] != 0 : uint8_t(in[i]);
            }
    });
}

}  // extern "C"
