// Shared by the engine's tests: a session of the engine for each test, tensors made from and read
// back as host values, random shapes and cuts, and kernels for tests (one that blocks until it is
// released, one that records when it ran).
#pragma once
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/executor/replay.h"
#include "engine/graph/context.h"
#include "engine/graph/recording.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "engine/runtime/host_copy.h"
#include "engine/runtime/session.h"
#include "engine/schedule/pipeline.h"
#include "engine/workers/waits.h"
#include "engine/workers/workers.h"
#include "kernels/implement.h"
#include "kernels/registry.h"
#include "tests/cpp/kernel_test.h"

namespace nn::engine_test {

using test::Random;
using Integers = std::vector<int64_t>;

// The engine for one test. Its end removes whatever the test left behind, also when the test fails
// half-way.
struct Session {
    explicit Session(int cpus = 2, const char* scheduler = "") { configure({{cpus}, scheduler}); }
    Session(const Session&) = delete;
    ~Session() {
        abort_recording();
        clear_interrupt();
        defer_interrupts(false);
        shutdown();
        try {
            check_pending();  // clears an unread error of a kernel
        } catch (const Error&) {
        }
        set_budget(0);
        configure({});
    }
};

// The message of the error that f throws, or "" where it throws none.
template <class F> std::string error_of(F f) {
    try {
        f();
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}
inline auto contains(const std::string& text) { return Catch::Matchers::Contains(text); }

// --- tensors ---

// Element i, row-major, is first + i: elements differ, so that any mix-up shows.
inline Integers numbered(int64_t count, int64_t first = 0) {
    Integers out;
    for (int64_t i = 0; i < count; ++i) out.push_back(first + i);
    return out;
}
inline Tensor tensor_of(const Grid& grid, const Integers& values) {
    Tensor out(grid, Dtype::i64);
    write_tensor(out, values.data());
    return out;
}
inline Tensor numbered_tensor(const Grid& grid, int64_t first = 0) {
    return tensor_of(grid, numbered(product(grid.shape()), first));
}
inline Tensor filled(const Grid& grid, Dtype dtype, double value) {
    const Tensor out(grid, dtype);
    fill(out, value);
    return out;
}
inline Tensor scalar_of(int64_t value) { return tensor_of(Grid(), {value}); }
inline Integers values_of(const Tensor& x) {
    Integers out(size_t(x.count()), -1);
    REQUIRE(x.dtype() == Dtype::i64);
    read_tensor(x, out.data());
    return out;
}
inline std::vector<uint8_t> bytes_of(const Tensor& x) {
    std::vector<uint8_t> out(size_t(x.bytes()));
    read_tensor(x, out.data());
    return out;
}
inline Grid grid_of(const Dims& shape, const Dims& tile) {
    Grid out;
    for (size_t i = 0; i < shape.size(); ++i) out.axes.push_back(cut_every(shape[i], tile[i]));
    return out;
}
inline std::vector<const nn::Tile*> tiles_of(const Tensor& x) {
    std::vector<const nn::Tile*> out;
    for (int64_t i = 0; i < x.tiles(); ++i) out.push_back(x.tile(i).get());
    return out;
}

// --- ops and programs ---

inline Value number(double value) {
    Value out;
    out.kind = Value::number;
    out.number_value = value;
    return out;
}
inline Value text(const char* value) {
    Value out;
    out.kind = Value::text;
    out.text_value = value;
    return out;
}
inline Value list(const Dims& values) {
    Value out;
    out.kind = Value::list;
    out.list_value = values;
    return out;
}
inline Tensor op(const char* name, const std::vector<Tensor>& inputs,
                 const std::vector<Value>& attributes = {}) {
    return apply(*find_op(name), inputs, attributes)[0];
}

// Records f for arguments like these, as nn.compile does.
using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
inline std::shared_ptr<Replay> compile(const std::vector<Tensor>& like, const Function& f) {
    begin_recording();
    try {
        std::vector<Tensor> inputs;
        for (const Tensor& x : like) {
            inputs.emplace_back(x.grid(), x.dtype());
            for (int64_t i = 0; i < x.tiles(); ++i) inputs.back().tile(i)->recorded = true;
        }
        const std::vector<Tensor> outputs = f(inputs);
        auto program = end_recording(inputs, outputs);
        prepare(*program);
        return std::make_shared<Replay>(std::move(program));
    } catch (...) {
        abort_recording();
        throw;
    }
}

// --- random shapes and cuts ---

inline Cuts random_cuts(Random& random, int64_t size) {
    Cuts out{0};
    const int64_t odds = random.integer(1, 4);  // one position in `odds` is cut, or none for 4
    for (int64_t at = 1; at < size; ++at)
        if (odds < 4 && random.integer(1, odds) == 1) out.push_back(at);
    out.push_back(size);
    return out;
}
inline Grid random_grid(Random& random, const Dims& shape) {
    Grid out;
    for (int64_t size : shape) out.axes.push_back(random_cuts(random, size));
    return out;
}
inline Dims random_shape(Random& random, size_t rank, int64_t largest = 5) {
    Dims out;
    for (size_t i = 0; i < rank; ++i) out.push_back(random.integer(1, largest));
    return out;
}
inline std::string to_string(const Grid& grid) {
    std::string out;
    for (const Cuts& cuts : grid.axes) out += nn::to_string(cuts);
    return out;
}

// Calls visit(index) for every index of a shape, row-major.
inline void each_index(const Dims& shape, const std::function<void(const Dims&)>& visit) {
    const Dims strides = row_major_strides(shape);
    for (int64_t i = 0; i < product(shape); ++i) {
        Dims index;
        for (size_t k = 0; k < shape.size(); ++k) index.push_back(i / strides[k] % shape[k]);
        visit(index);
    }
}
inline size_t offset_of(const Dims& shape, const Dims& index) {
    int64_t out = 0;
    for (size_t k = 0; k < shape.size(); ++k) out = out * shape[k] + index[k];
    return size_t(out);
}

// --- kernels for tests ---

struct empty_params {
    int64_t unused;
};

// Declares and implements a kernel.
struct TestKernel {
    TestKernel(const char* name, const char* operands, const char* params_type, size_t params_size,
               KernelFn function) {
        declare_kernel({name, Bound::memory, operands, params_type, params_size});
        ImplementationRegistrar("baseline", name, &function);
    }
};

// A kernel that runs until it is released: later tasks are certainly still in flight.
struct Gate {
    static inline std::atomic<bool> closed{false};
    static inline std::atomic<int> waiting{0};
    Gate() { closed = true, waiting = 0; }
    ~Gate() { open(); }
    static void open() { closed = false; }
    // Waits until a worker runs the kernel; false if none does within ten seconds.
    static bool reached() {
        for (int i = 0; i < 10000 && !waiting; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return waiting > 0;
    }
    static void pass(const KernelCall&) {
        ++waiting;
        while (closed) std::this_thread::sleep_for(std::chrono::microseconds(100));
        --waiting;
    }
};
inline const TestKernel gate_kernel("test_gate", "y:rw", "empty_params", sizeof(empty_params),
                                    Gate::pass);
inline void emit_gate(const TilePtr& tile) {
    task("test_gate", Dtype::i64).use(updates(tile)).params(empty_params{}).emit();
}

// y = y * 31 + a + value, modulo 2^64: different orders of writes give different results.
struct mix_params {
    uint64_t value;
};
inline void mix(const KernelCall& call) {
    uint64_t& y = *call.operand<uint64_t>(0);
    const uint64_t* a = call.operand<uint64_t>(1);
    y = y * 31 + (a ? *a : 0) + call.get<mix_params>().value;
}
inline const TestKernel mix_kernel("test_mix", "y:rw a:r?", "mix_params", sizeof(mix_params), mix);

// Records a number, which may come from a scalar: what ran, how often and with which value.
struct note_params {
    double value;
};
struct Notes {
    static inline std::mutex mutex;
    static inline std::vector<double> list;
    static void add(const KernelCall& call) {
        std::lock_guard lock(mutex);
        list.push_back(call.get<note_params>().value);
    }
    static std::vector<double> take() {
        wait_all();
        std::lock_guard lock(mutex);
        return std::move(list);
    }
};
inline const TestKernel note_kernel("test_note", "y:rw", "note_params", sizeof(note_params),
                                    Notes::add);
inline void emit_note(const TilePtr& tile, double value, const std::vector<Patch>& patches = {}) {
    task("test_note", Dtype::i64)
        .use(updates(tile))
        .params(note_params{value})
        .patch(patches)
        .emit();
}

}  // namespace nn::engine_test
