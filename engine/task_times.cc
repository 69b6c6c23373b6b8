// How long tasks take on this machine, measured by calling their kernels on zeros (plan.h).
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "engine/memory.h"
#include "engine/plan.h"
#include "engine/runtime.h"
#include "kernels/blas.h"

namespace nn {
namespace {

// Seconds that a task costs beside its kernel: StarPU's work on the worker, and the submission,
// which a core does too.
constexpr double overhead = 10e-6;
constexpr double longest = 0.12;            // seconds that a task may take to be measured
constexpr double budget = 1.5;              // seconds for all measurements of one program
constexpr size_t room = size_t(128) << 20;  // bytes of operands that a thread keeps

double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

size_t rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

size_t operand_bytes(const Task& task) {
    size_t sum = 0;
    for (int i = 0; i < task.handles; ++i) sum += rounded(task.tiles[i]->bytes);
    return sum;
}

// Zeros that operands are taken from, one place after the other, so that they are as cold in the
// caches as they would be in a step.
class Scratch {
public:
    explicit Scratch(size_t bytes) : bytes_(bytes) {
        void* got =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) return;
        data_ = static_cast<char*>(got);
        madvise(data_, bytes, MADV_HUGEPAGE);
        std::fill(data_, data_ + bytes, 0);
    }
    ~Scratch() {
        if (data_) munmap(data_, bytes_);
    }
    Scratch(const Scratch&) = delete;
    char* take(size_t bytes) {
        if (at_ + bytes > bytes_) at_ = 0;
        char* const out = data_ + at_;
        at_ += rounded(bytes);
        return out;
    }
    bool good() const { return data_ != nullptr; }

private:
    const size_t bytes_;
    size_t at_ = 0;
    char* data_ = nullptr;
};

// Seconds of one call; negative where the kernel refuses zeros.
double call_once(const Task& task, Scratch& scratch) {
    void* handles[max_operands] = {};
    void* operands[max_operands] = {};
    for (int i = 0; i < task.handles; ++i) handles[i] = scratch.take(task.tiles[i]->bytes);
    for (int i = 0; i < task.arg.operands; ++i)
        if (task.arg.buffer_of[i] >= 0) operands[i] = handles[task.arg.buffer_of[i]];
    std::string error;
    const double start = now();
    task.arg.kernel->on(Device::cpu)(
        KernelCall{operands, task.arg.params, task.arg.dtype, nullptr, &error});
    return error.empty() ? now() - start : -1;
}

// The workers of a measurement: each has its scratch, all run the same kernel at once.
class Crew {
public:
    Crew(int workers, size_t bytes) {
        for (int i = 0; i < workers; ++i) scratch_.push_back(std::make_unique<Scratch>(bytes));
    }
    bool good() const {
        return std::all_of(scratch_.begin(), scratch_.end(), [](auto& s) { return s->good(); });
    }
    // The median call's seconds; negative where the kernel refuses zeros. The first is a warm-up.
    double measure(const Task& task, int calls) {
        std::vector<std::thread> threads;
        std::vector<double> all(scratch_.size() * size_t(calls), -1);
        std::atomic<int> waiting{int(scratch_.size())};
        for (size_t w = 0; w < scratch_.size(); ++w)
            threads.emplace_back([&, w] {
                call_once(task, *scratch_[w]);
                for (--waiting; waiting > 0;) std::this_thread::yield();
                for (int i = 0; i < calls; ++i)
                    all[w * size_t(calls) + size_t(i)] = call_once(task, *scratch_[w]);
            });
        for (std::thread& thread : threads) thread.join();
        std::nth_element(all.begin(), all.begin() + long(all.size() / 2), all.end());
        return all[all.size() / 2];
    }

private:
    std::vector<std::unique_ptr<Scratch>> scratch_;
};

// A product of 768 x 768 matrices, and a copy of 8 MB: what rates are for tasks that cannot be
// measured themselves.
Task fixed_task(const char* kernel, Dtype dtype, const void* params, size_t params_bytes,
                size_t tile_bytes, int operands, int tiles) {
    Task task;
    std::memset(&task.arg, 0, sizeof task.arg);
    task.arg.kernel = find_kernel(kernel);
    task.arg.dtype = dtype;
    task.arg.operands = uint8_t(operands);
    for (int i = 0; i < operands; ++i) task.arg.buffer_of[i] = int8_t(i < tiles ? i : -1);
    task.handles = uint8_t(tiles);
    for (int i = 0; i < tiles; ++i) task.tiles[i] = std::make_shared<Tile>(tile_bytes);
    task.arg.bytes = float(tile_bytes) * float(tiles);
    std::memcpy(task.arg.params, params, params_bytes);
    return task;
}

Task fixed_product(Dtype dtype) {
    constexpr int64_t n = 768;
    nn_gemm_params p{};
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = n;
    p.batch = 1, p.alpha = 1;
    Task task = fixed_task("gemm", dtype, &p, sizeof p, n * n * dtype_size(dtype), 5, 3);
    task.arg.flops = float(2.0 * n * n * n);
    return task;
}

Task fixed_copy() {
    constexpr int64_t n = int64_t(2) << 20;
    nn_copy_params p{};
    p.ndim = 1;
    p.extent[0] = n, p.src_stride[0] = p.dst_stride[0] = 1;
    return fixed_task("copy", Dtype::f32, &p, sizeof p, n * 4, 2, 2);
}

double guessed_seconds(const Task& task) { return guessed_time(task.arg) * 1e-6; }

// Tasks of one kind, in a program.
struct Kind {
    const Task* task = nullptr;
    double work = 0;  // guessed seconds of all of them
};

}  // namespace

double guessed_time(const TaskArg& arg) {
    return 5 + std::max(double(arg.flops) * 1e-5, double(arg.bytes) * 1e-4);
}

TaskTimes& task_times() {
    static auto* const times = new TaskTimes;
    return *times;
}

TaskTimes::Key TaskTimes::key_of(const Task& task) {
    return {task.arg.kernel, {int(task.arg.dtype), {task.arg.flops, task.arg.bytes}}};
}

// Kinds that are not measured yet and can be, those with most work first.
std::vector<const Task*> TaskTimes::candidates(const std::vector<const Task*>& tasks) const {
    std::map<Key, Kind> kinds;
    for (const Task* task : tasks) {
        const Key key = key_of(*task);
        if (measured_.count(key) || !task->arg.kernel->on(Device::cpu) ||
            operand_bytes(*task) > room || guessed_seconds(*task) > longest)
            continue;
        Kind& kind = kinds[key];
        kind.task = task;
        kind.work += guessed_seconds(*task);
    }
    std::vector<Kind> sorted;
    for (const auto& [key, kind] : kinds) sorted.push_back(kind);
    std::sort(sorted.begin(), sorted.end(),
              [](const Kind& a, const Kind& b) { return a.work > b.work; });
    std::vector<const Task*> out;
    for (const Kind& kind : sorted) out.push_back(kind.task);
    return out;
}

void TaskTimes::measure(const std::vector<const Task*>& tasks, int workers) {
    const double start = now();
    const std::vector<const Task*> kinds = candidates(tasks);
    size_t bytes = size_t(32) << 20;
    for (const Task* task : kinds) bytes = std::max(bytes, 2 * operand_bytes(*task));
    if (int64_t(bytes) * workers > default_budget() / 4) return;  // then guesses must do
    blas::load();
    idle();  // workers that look for tasks would be in the way
    Crew crew(workers, bytes);
    if (!crew.good()) return;
    if (bytes_per_second_ == 0) {
        const Task copy = fixed_copy();
        bytes_per_second_ = double(copy.arg.bytes) / crew.measure(copy, 5);
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
            const Task product = fixed_product(dtype);
            flops_per_second_[int(dtype)] = double(product.arg.flops) / crew.measure(product, 5);
        }
    }
    for (const Task* task : kinds) {
        if (now() - start > budget) break;
        const int calls = guessed_seconds(*task) > 0.02 ? 1 : 5;
        const double seconds = crew.measure(*task, calls);
        if (seconds >= 0) measured_[key_of(*task)] = seconds;
    }
}

double TaskTimes::seconds(const Task& task) const {
    const Key key = key_of(task);
    if (const auto at = measured_.find(key); at != measured_.end()) return overhead + at->second;
    if (bytes_per_second_ == 0) return guessed_seconds(task);
    // Of the same kernel, what has most nearly as much to do; beyond a factor of 32 the fixed
    // rates.
    const double work = guessed_seconds(task);
    double nearest = 32, out = 0;
    for (auto at = measured_.lower_bound({key.first, {key.second.first, {0, 0}}});
         at != measured_.end() && at->first.first == key.first &&
         at->first.second.first == key.second.first;
         ++at) {
        const auto [flops, bytes] = at->first.second.second;
        const double ratio = work / (5e-6 + std::max(double(flops) * 1e-11, double(bytes) * 1e-10));
        const double distance = std::max(ratio, 1 / ratio);
        if (distance < nearest) nearest = distance, out = at->second * ratio;
    }
    if (out > 0) return overhead + out;
    const double flops = flops_per_second_[int(task.arg.dtype)];
    return overhead + std::max(flops > 0 ? double(task.arg.flops) / flops : 0,
                               double(task.arg.bytes) / bytes_per_second_);
}

}  // namespace nn
