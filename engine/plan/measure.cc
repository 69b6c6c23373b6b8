#include "engine/plan/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/heap.h"
#include "engine/base/interrupts.h"
#include "engine/base/kept_numbers.h"
#include "engine/base/threads.h"
#include "engine/base/user_cache.h"
#include "engine/machine/description.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/plan/rank_link.h"
#include "engine/residency/tier_settings.h"
#include "engine/runtime/session.h"
#include "engine/workers/rates.h"
#include "engine/workers/waits.h"
#include "engine/workers/workers.h"
#include "kernels/blas.h"
#include "kernels/products/products.h"

namespace nn {
namespace {

// Seconds of overhead per task: StarPU's work on the worker, and the submission, which needs a core
// too.
constexpr double overhead = 10e-6;
constexpr double longest = 0.12;            // seconds of the longest task to measure
constexpr double time_limit = 1.5;          // seconds for all measurements of one program
constexpr size_t room = size_t(128) << 20;  // bytes of operands per thread
// Address space of a thread's stack and of OpenBLAS's buffer for it, see memory_limit.cc.
constexpr size_t thread_room = size_t(136) << 20;

size_t rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Zeros for operands. Each call uses other addresses, so that the caches are as cold as in a step.
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

// Seconds of one call; negative if the kernel rejects zeros or finds no memory.
double call_once(const BenchmarkCall& call, Scratch& scratch) {
    std::vector<void*> operands;
    for (size_t bytes : call.operand_bytes)
        operands.push_back(bytes ? scratch.take(bytes) : nullptr);
    std::string error;
    const double start = now_seconds();
    try {
        call.kernel->on(Device::cpu)(
            KernelCall{operands.data(), call.params, call.dtype, nullptr, &error});
    } catch (const std::bad_alloc&) {
        return -1;
    }
    return error.empty() ? now_seconds() - start : -1;
}

BenchmarkCall call_of(const Task& task) {
    BenchmarkCall out{task.arg.kernel, task.arg.dtype, {}, {}, 0, 0};
    std::memcpy(out.params, task.arg.params, sizeof out.params);
    for (int i = 0; i < task.arg.operands; ++i) {
        const int handle = task.arg.buffer_of[i];
        out.operand_bytes.push_back(handle < 0 ? 0 : task.tiles[handle]->bytes);
    }
    return out;
}

size_t room_for(const BenchmarkCall& call) {
    size_t sum = 0;
    for (size_t bytes : call.operand_bytes) sum += rounded(bytes);
    return sum;
}

// Whether the limits of the process allow so much more address space. OpenBLAS asks for its buffer
// again without end if it cannot have it, so a product must not start without room.
bool can_map(size_t bytes) {
    void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return got != MAP_FAILED && munmap(got, bytes) == 0;
}

// A thread for each worker, with its own scratch; all run the same kernel at once.
class ParallelBenchmark {
public:
    ParallelBenchmark(int workers, size_t bytes)
        : good_(can_map(size_t(workers) * (bytes + thread_room))) {
        for (int i = 0; i < workers && good_; ++i) {
            scratch_.push_back(std::make_unique<Scratch>(bytes));
            good_ = scratch_.back()->good();
        }
    }
    bool good() const { return good_; }
    // The median seconds of a call, after a warm-up; negative if it fails or no thread is
    // available. Throws Interrupted.
    double measure(const BenchmarkCall& call, int calls) {
        std::vector<std::thread> threads;
        std::vector<double> all(scratch_.size() * size_t(calls), -1);
        std::atomic<int> waiting{int(scratch_.size())};
        const auto run = [&](size_t w) {
            call_once(call, *scratch_[w]);
            for (--waiting; waiting > 0;) std::this_thread::yield();
            for (int i = 0; i < calls && !must_stop(); ++i)
                all[w * size_t(calls) + size_t(i)] = call_once(call, *scratch_[w]);
        };
        threads.reserve(scratch_.size());
        const SignalsBlocked in_the_threads;
        try {
            while (threads.size() < scratch_.size()) threads.emplace_back(run, threads.size());
        } catch (const std::system_error&) {
            waiting -= int(scratch_.size() - threads.size());
        }
        for (std::thread& thread : threads) thread.join();
        check_interrupt();
        if (threads.size() < scratch_.size()) return -1;
        std::nth_element(all.begin(), all.begin() + long(all.size() / 2), all.end());
        return all[all.size() / 2];
    }

private:
    bool good_;
    std::vector<std::unique_ptr<Scratch>> scratch_;
};

// Workers that poll for tasks would disturb a measurement.
ParallelBenchmark parallel_benchmark(int workers, size_t bytes) {
    blas::load();
    products::choice();
    idle();
    return_free_memory();  // of the tasks that were in flight
    return ParallelBenchmark(workers, bytes);
}

// None without enough memory.
std::optional<ParallelBenchmark> benchmark_if_memory_allows(size_t bytes) {
    const int workers = host().count(Device::cpu);
    if (int64_t(bytes) * workers > available(arena_taken()) / 4) return {};
    std::optional<ParallelBenchmark> out(parallel_benchmark(workers, bytes));
    if (!out->good()) out.reset();
    return out;
}

constexpr int64_t rate_size = 768;                // of products
constexpr int64_t rate_bytes = int64_t(8) << 20;  // of copies
constexpr size_t least_room = size_t(32) << 20;   // enough for them

constexpr std::pair<const char*, double Rates::*> named_rates[] = {{"rate f32", &Rates::f32},
                                                                   {"rate f64", &Rates::f64},
                                                                   {"rate bf16", &Rates::bf16},
                                                                   {"rate tf32", &Rates::tf32},
                                                                   {"rate bytes", &Rates::bytes}};

// What earlier processes measured with the same processor, libraries and workers, and as many ranks
// on the host at the same time.
KeptNumbers& kept() {
    static KeptNumbers instance(
        "times",
        format("%d workers of each of %d ranks, %s, %s %s%s %s", host().count(Device::cpu),
               ranks().on_host, products::processor_and_libraries().c_str(),
               products::way_name(products::choice().f32),
               products::way_name(products::choice().bf16),
               products::choice().by_shape ? " by shape" : "", value_or("NNLUA_ISA", "").c_str()));
    return instance;
}

// By how much the rates of a product differ at most while nothing else uses the cores.
constexpr double much_faster = 1.3;

// The rate of a product now; 0: unknown.
double product_rate_now(ParallelBenchmark& benchmark) {
    const BenchmarkCall product = benchmark_product(rate_size, Dtype::f32, false);
    const double seconds = benchmark.measure(product, 5);
    return seconds > 0 ? product.flops / seconds : 0;
}

// Whether products are now so much faster that something else used the cores before.
bool were_disturbed(const Rates& before) {
    std::optional<ParallelBenchmark> benchmark = benchmark_if_memory_allows(least_room);
    return benchmark && product_rate_now(*benchmark) > much_faster * before.f32;
}

// Unknown if they are to be measured again.
Rates kept_rates() {
    Rates out;
    for (const auto& [name, rate] : named_rates) {
        const std::optional<double> found = kept().find(name);
        if (!found) return {};
        out.*rate = *found;
    }
    if (!were_disturbed(out)) return out;
    kept().forget();
    return {};
}

}  // namespace

// As described, or measured when the engine started; not known() if neither.
static Rates known_gpu_rates() {
    const WorkerGroup* const described = machine().group(Device::cuda);
    if (described && described->rates.known() && described->rates.bf16 > 0) return described->rates;
    const std::vector<int> gpus = first_streams();
    return gpus.empty() || machine_is_described() ? Rates() : rates_of(gpus.front());
}

bool gpu_rates_are_assumed() { return planned_gpus() > 0 && !known_gpu_rates().known(); }

static Rates gpu_rates() {
    constexpr Rates h100 = {5e13, 5e13, 7e14, 3.5e14, 2.8e12, 5e-6, 132};  // about
    const Rates known = known_gpu_rates();
    return known.known() ? known : h100;
}

int planned_gpus() { return tiers().exist() && !tiers().on_gpu() ? 0 : gpus_in_use(); }
int planned_workers() { return planned_gpus() > 0 ? planned_gpus() : machine().count(Device::cpu); }

TaskTimes::Key TaskTimes::key_of(const Task& task) {
    return {task.arg.kernel, task.arg.dtype, task.arg.flops, task.arg.bytes};
}

// The kinds to measure, those with most work first.
TaskTimes::Candidates TaskTimes::candidates(const std::vector<Task>& tasks) const {
    std::map<Key, std::pair<double, const Task*>> kinds;
    for (const Task& task : tasks) {
        const double seconds = nominal_seconds(task.arg);
        if (seconds > longest || !task.arg.kernel->on(Device::cpu) ||
            measured_.count(key_of(task)) || left_out_.count(key_of(task)) ||
            room_for(call_of(task)) > room)
            continue;
        auto& [work, example] = kinds[key_of(task)];
        work += seconds, example = &task;
    }
    Candidates out;
    for (const auto& [key, kind] : kinds) out.insert(kind);
    return out;
}

std::string TaskTimes::name_of(const Key& key) {
    return format("%s %s %.9g %.9g", key.kernel->name.c_str(), dtype_name(key.dtype),
                  double(key.flops), double(key.bytes));
}

void TaskTimes::set(const Key& key, double seconds) {
    if (seconds > 0)
        measured_[key] = seconds;
    else
        left_out_.insert(key);
}

// Removes the kinds whose times are kept.
void TaskTimes::recall(Candidates& kinds) {
    constexpr int always_measured = 16;  // although earlier programs left them out
    int kind_number = 0;
    std::erase_if(kinds, [&](const auto& kind) {
        const Key key = key_of(*kind.second);
        const std::optional<double> seconds = kept().find(name_of(key));
        const bool is_kept = seconds && (*seconds > 0 || kind_number >= always_measured);
        ++kind_number;
        if (is_kept) set(key, *seconds);
        return is_kept;
    });
}

void TaskTimes::measure(const std::vector<Task>& tasks) {
    if (planned_gpus() > 0) return;
    if (machine().group(Device::cpu)->rates.known()) return;  // described
    const double start = now_seconds();
    Candidates kinds = candidates(tasks);
    if (kinds.empty() && rates_.known()) return;
    if (!rates_.known()) rates_ = kept_rates();
    recall(kinds);
    if (kinds.empty() && rates_.known()) return;
    size_t bytes = least_room;
    for (const auto& [work, task] : kinds) bytes = std::max(bytes, 2 * room_for(call_of(*task)));
    std::optional<ParallelBenchmark> benchmark = benchmark_if_memory_allows(bytes);
    if (!benchmark) return;  // times stay nominal
    if (!rates_.known()) {
        const auto run = [&](const BenchmarkCall& call) { return benchmark->measure(call, 5); };
        rates_ = measured_rates(run, rate_size, rate_bytes, false);
        for (const auto& [name, rate] : named_rates)
            if (rates_.known()) kept().keep(name, rates_.*rate);
    }
    for (const auto& [work, task] : kinds) {
        const int calls = nominal_seconds(task->arg) > 0.02 ? 1 : 5;
        const bool in_time = now_seconds() - start <= time_limit;
        const double seconds = in_time ? benchmark->measure(call_of(*task), calls) : 0;
        if (seconds < 0) continue;
        set(key_of(*task), seconds);
        kept().keep(name_of(key_of(*task)), seconds);
    }
    // If something else used the cores just now, the next start measures again.
    if (much_faster * product_rate_now(*benchmark) >= rates_.f32) kept().save();
}

// Scales the time of the measured task of the same kernel and dtype with the nearest work, within a
// factor of 32; 0 if there is none.
double TaskTimes::scaled(const Task& task) const {
    const Key key = key_of(task);
    const double work = nominal_seconds(task.arg);
    double nearest = 32, out = 0;
    for (auto at = measured_.lower_bound({key.kernel, key.dtype, 0, 0});
         at != measured_.end() && at->first.kernel == key.kernel && at->first.dtype == key.dtype;
         ++at) {
        TaskArg arg = task.arg;
        arg.flops = at->first.flops, arg.bytes = at->first.bytes;
        const double ratio = work / nominal_seconds(arg), distance = std::max(ratio, 1 / ratio);
        if (distance < nearest) nearest = distance, out = at->second * ratio;
    }
    return out;
}

double TaskTimes::seconds(const Task& task) const {
    if (task.is_transfer()) return rank_transfer_seconds(double(task.arg.bytes));
    if (planned_gpus() > 0) return seconds_of(task.arg, gpu_rates());
    const Rates& described = machine().group(Device::cpu)->rates;
    if (described.known()) return overhead + seconds_of(task.arg, described);
    if (const auto at = measured_.find(key_of(task)); at != measured_.end())
        return overhead + at->second;
    if (!rates_.known()) return nominal_seconds(task.arg);
    const double similar = scaled(task);
    return overhead + (similar > 0 ? similar : seconds_of(task.arg, rates_));
}

double product_rate(int64_t size, Dtype dtype) {
    if (gpus() > 0 && settings().where != Where::cpu) {
        double sum = 0;
        for (int worker : first_streams()) {
            const Rates rates = rates_of(worker);
            sum += dtype == Dtype::bf16 ? rates.bf16 : settings().tf32 ? rates.tf32 : rates.f32;
        }
        return sum;
    }
    const BenchmarkCall product = benchmark_product(size, dtype, false);
    ParallelBenchmark benchmark = parallel_benchmark(cpu_workers(), room_for(product));
    double best = 0;
    for (int round = 0; round < 5 && benchmark.good(); ++round) {
        const double seconds = benchmark.measure(product, 1);
        if (seconds > 0 && (best == 0 || seconds < best)) best = seconds;
    }
    if (best == 0) fail("no memory or thread to measure products of size %lld", (long long)size);
    return product.flops * cpu_workers() / best;
}

}  // namespace nn
