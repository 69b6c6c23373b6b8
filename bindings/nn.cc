// The C API, actions: the runtime, tensors, ops, programs, scalars, scopes, memory, random numbers.
// It checks arguments and calls the engine.
#include "bindings/handles.h"
#include "engine/base/interrupts.h"
#include "engine/graph/context.h"
#include "engine/graph/recording.h"
#include "engine/graph/scalars.h"
#include "engine/graph/sink.h"
#include "engine/machine/description.h"
#include "engine/machine/host.h"
#include "engine/machine/memory_limit.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/residency/homes.h"
#include "engine/rules/rules.h"
#include "engine/runtime/host_copy.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/session.h"
#include "engine/schedule/pipeline.h"
#include "engine/workers/waits.h"
#include "engine/workers/workers.h"

using namespace nn;
using namespace nn::capi;

namespace {

Value value_of(const nn_value& v) {
    Value out;
    if (v.kind < Value::none || v.kind > Value::scalar)
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
        case Value::scalar:
            if (!(v.number >= 0 && v.number <= INT32_MAX)) fail("unknown scalar %g", v.number);
            out.scalar_id = int32_t(v.number);
            scalar_value(out.scalar_id);
            break;
    }
    return out;
}

ScalarOperand operand_of(const nn_value* v, const char* what) {
    const Value value = value_of(given(v, what));
    if (value.kind != Value::number && value.kind != Value::scalar)
        fail("%s of a computed scalar is neither a number nor a scalar", what);
    return {value.number_value, value.kind == Value::scalar ? value.scalar_id : -1};
}

// Checks that `data` has room for exactly the elements of the tensor, which it returns.
Tensor tensor_of_size(const nn_ref* tensor, const void* data, int64_t bytes, const char* what) {
    Tensor t = tensor_of(given(tensor, "tensor"));
    if (!data || bytes != t.bytes())
        fail("%s: %lld bytes given for %lld", what, (long long)bytes, (long long)t.bytes());
    return t;
}

// value -1: leave the setting.
template <class T> void exchange_setting(T& setting, int32_t value, int32_t* was) {
    if (was) *was = setting;
    if (value >= 0) setting = T(value);
}

}  // namespace

extern "C" {

const char* nn_error(void) { return last_error().c_str(); }

int nn_configure(int32_t cpus, const char* scheduler, int32_t gpus, int64_t gpu_memory,
                 int32_t streams, int32_t cuda_graphs) {
    return guard([&] {
        if (cpus < 0 || cpus > most_cpu_workers())
            fail("devices: %d CPU workers, not 0 to %d", cpus, most_cpu_workers());
        if (gpus < -1 || gpus > 1024) fail("devices: %d GPUs, not -1 to 1024", gpus);
        constexpr int64_t least = int64_t(64) << 20;
        if (gpu_memory != 0 && (gpu_memory < least || gpu_memory > int64_t(1) << 50))
            fail("devices: gpu_memory is %lld bytes; 0 (all) or at least 64 MB is needed",
                 (long long)gpu_memory);
        if (streams < 0 || streams > 4) fail("devices: %d streams; 1 to 4 are possible", streams);
        configure(
            {{cpus, gpus, gpu_memory}, scheduler ? scheduler : "", streams, cuda_graphs != 0});
    });
}

int nn_workers(int32_t* cpus, int32_t* gpus) {
    return guard([&] {
        given(cpus, "cpus"), given(gpus, "gpus");
        *cpus = cpu_workers(), *gpus = nn::gpus();
    });
}

int nn_host_limits(int32_t* cores, const char** why, const char** problem) {
    return guard([&] {
        given(cores, "cores"), given(why, "why"), given(problem, "gpu_problem");
        *cores = core_limit().cores, *why = core_limit().why.c_str();
        *problem = gpu_problem().c_str();
    });
}

int nn_shutdown(void) {
    return guard([] {
        abort_recording();
        release_all();
        shutdown();
    });
}
int nn_sync(void) { return guard_pending(wait_all); }
int nn_idle(void) { return guard(idle); }

int nn_interrupted(int32_t* flag) { return put(flag, "flag", interrupt_requested); }
int nn_check_interrupt(void) { return guard(check_interrupt); }
int nn_clear_interrupt(void) { return guard(clear_interrupt); }
int nn_defer_interrupts(int32_t deferred) {
    return guard(defer_interrupts, deferred != 0, deferred != 2);
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
        info.rank = int32_t(t.rank()), info.dtype = int32_t(t.dtype());
        for (size_t i = 0; i < t.rank(); ++i)
            info.shape[i] = t.shape()[i], info.tiles[i] = t.grid().tiles(i);
        info.count = t.count(), info.bytes = t.bytes();
        info.is_view = t.is_view(), info.temporary = t.tile(0)->recording != 0;
    });
}

int nn_read(const nn_ref* tensor, void* out, int64_t bytes) {
    return guard_pending([&] {
        const Tensor t = tensor_of_size(tensor, out, bytes, "read");
        if (t.stale())
            fail("read: a view of a tensor that was changed in place since; take the view again");
        read_tensor(t, out);
        check_pending();
    });
}

int nn_write(const nn_ref* tensor, const void* in, int64_t bytes) {
    return guard_pending([&] { write_tensor(tensor_of_size(tensor, in, bytes, "write"), in); });
}

int nn_versions(const nn_ref* tensors, int32_t count, int64_t* versions) {
    return guard([&] {
        if (count < 0 || (count > 0 && (!tensors || !versions))) fail("versions: no tensors");
        for (int32_t i = 0; i < count; ++i) {
            versions[i] = 0;
            if (tensors[i].index) versions[i] = tensor_of(tensors[i]).version();
        }
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
            if (tile[i] < 0) fail("retile: a tile size of %lld, below 0", (long long)tile[i]);
            grid.axes.push_back(tile[i] ? cut_every(t.dim(i), tile[i]) : whole(t.dim(i)));
        }
        const Tensor cut = retile(t, grid);
        *out = new_ref(cut.identity() == t.identity() ? t.refreshed_view() : cut);
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

int nn_tensors_alive(int64_t* count) { return put(count, "count", tensors_alive); }

int nn_apply(int32_t index, const nn_ref* inputs, int32_t n_inputs, const nn_value* attributes,
             int32_t n_attributes, nn_ref* outputs, int32_t* n_outputs) {
    return guard_pending([&] {
        const Op& op = op_at(index);
        given(outputs, "outputs"), given(n_outputs, "n_outputs");
        if (n_attributes < 0 || size_t(n_attributes) > op.values() ||
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
        for (int64_t i = 0; i < input.tiles(); ++i) input.tile(i)->recorded = true;
        *out = new_ref(input);
    });
}

int nn_record_abort(void) { return guard(abort_recording); }
int nn_recording(void) { return recording_number() != 0; }

int nn_record_end(const nn_ref* inputs, int32_t n_inputs, const nn_ref* outputs, int32_t n_outputs,
                  nn_ref* program) {
    return guard([&] {
        const Planning planning;
        const std::vector<Tensor> in = tensors_of(inputs, n_inputs, "compile"),
                                  out = tensors_of(outputs, n_outputs, "compile");
        given(program, "program") = {0, 0};
        if (tiers().exist()) idle();  // workers that wait for tasks would slow down planning
        auto recorded = end_recording(in, out);
        prepare(*recorded);
        *program = new_ref(std::make_shared<Replay>(std::move(recorded)));
    });
}

int nn_program_run(const nn_ref* program, const nn_ref* inputs, int32_t n_inputs, nn_ref* outputs,
                   int32_t n_outputs) {
    return guard_pending([&] {
        Replay& p = program_of(program);
        const size_t results = p.program().outputs.size();
        if (int64_t(results) > n_outputs || (results > 0 && !outputs))
            fail("compiled function: %zu results, room for %d", results, outputs ? n_outputs : 0);
        put_results(p.run(tensors_of(inputs, n_inputs, "compiled function")), outputs, n_outputs);
    });
}

int nn_program_info(const nn_ref* program, nn_program_info_t* out) {
    return guard([&] {
        const ProgramInfo& info = program_of(program).program().info;
        given(out, "out") = {info.tasks, info.tiles, info.flops, info.persistent_bytes,
                             info.peak_bytes};
    });
}

int nn_record_microbatch(int32_t tiles) {
    return guard([&] {
        if (tiles < 1) fail("compile: a microbatch of %d tiles", tiles);
        begin_microbatch(tiles);
    });
}

int nn_record_shard(int32_t shard, int32_t shards) {
    return guard([&] { set_shard(shard, shards); });
}

int nn_record_loop(int32_t iterations) { return guard(begin_loop, iterations); }
int nn_record_iteration(int32_t iteration) { return guard(set_iteration, iteration); }
int nn_record_body(void) { return guard(begin_body); }
int nn_record_loop_end(int32_t repeats, int32_t* done) {
    return put(done, "done", end_loop, repeats != 0);
}

int nn_record_backward(int32_t begins) {
    return guard([&] { begins ? begin_backward() : end_backward(); });
}

int nn_scalar_new(double value, int32_t* scalar) {
    return put(scalar, "scalar", new_scalar, value);
}
int nn_scalar_free(int32_t scalar) { return guard(free_scalar, scalar); }
int nn_scalar_set(int32_t scalar, double value) { return guard(set_scalar, scalar, value); }
int nn_scalar_get(int32_t scalar, double* value) {
    return put(value, "value", scalar_value, scalar);
}
int nn_scalar_computed(int32_t op, const nn_value* a, const nn_value* b, int32_t* scalar) {
    return put(scalar, "scalar", [&] {
        return computed_scalar(op > 0 && op < 127 ? char(op) : '\0', operand_of(a, "a"),
                               operand_of(b, "b"));
    });
}
int nn_scalar_add(int32_t scalar, double delta) {
    return guard([&] {
        set_scalar(scalar, scalar_value(scalar));  // throws if it cannot change
        sink().add_to_scalar(scalar, delta);
    });
}

int nn_scope_begin(void) { return guard(begin_scope); }
int nn_scope_end(const nn_ref* keep, int32_t n_keep) { return guard(end_scope, keep, n_keep); }

int nn_memory(nn_memory_info_t* out) {
    return guard([&] {
        const ArenaInfo arena = arena_info();
        const ResidentMemory resident = resident_memory();
        given(out, "out") = {budget(),
                             arena.in_use,
                             arena.cached,
                             arena.peak,
                             admitted_bytes(),
                             available(arena_taken()),
                             tile_bytes_on_gpus(machine()),
                             resident.now,
                             resident.peak};
    });
}

int nn_memory_budget(int64_t bytes) {
    return guard([&] {
        if (bytes < 0) fail("memory budget: %lld bytes; at least 0 is needed", (long long)bytes);
        if (bytes > largest_budget() && !machine_is_described())
            fail("memory budget: %s; this process can use %s at most",
                 human_bytes(double(bytes)).c_str(), human_bytes(double(largest_budget())).c_str());
        set_budget(bytes, arena_taken());
        check_room();
    });
}
int nn_reset_peak(void) { return guard(reset_peak); }
int nn_check_tiles(int32_t chosen, int32_t* was) {
    return guard([&] {
        if (chosen < -1 || chosen > 1) fail("checks of tiles: %d, not -1 to 1", chosen);
        const bool before = check_tiles(chosen);
        if (was) *was = before;
    });
}
int nn_matmul_tf32(int32_t allowed, int32_t* was) {
    return guard([&] {
        if (allowed < -1 || allowed > 1) fail("matmul precision: TF32 allowed %d", allowed);
        exchange_setting(settings().tf32, allowed, was);
    });
}
int nn_attention_backend(int32_t backend, int32_t* was) {
    return guard([&] {
        if (backend < -1 || backend > 2) fail("attention: backend %d, not -1 to 2", backend);
        exchange_setting(settings().attention, backend, was);
    });
}
int nn_bf16_gradients(int32_t chosen, int32_t* was) {
    return guard([&] {
        if (chosen < -1 || chosen > 1) fail("gradients: bf16 is %d, not -1 to 1", chosen);
        exchange_setting(settings().bf16_gradients, chosen, was);
    });
}
int nn_seed(uint64_t seed) { return guard(seed_random, seed); }
int nn_random_state(uint64_t* seed, uint64_t* counter) {
    return guard([&] {
        given(seed, "seed"), given(counter, "counter");
        *seed = random_seed(), *counter = random_counter();
    });
}
int nn_set_random_counter(uint64_t counter) { return guard(set_random_counter, counter); }
int nn_next_random(int64_t* counter) {
    return put(counter, "counter", [] { return sink().next_random(); });
}

}  // extern "C"
