#include "tests/emulated/runtime/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace emulated {
namespace {

// A wrong description must not be taken for a run without failures.
[[noreturn]] void refuse(const std::string& word) {
    std::fprintf(stderr,
                 "EMULATED_CUDA: cannot read '%s'; tests/emulated/runtime/device.h lists what it "
                 "may contain\n",
                 word.c_str());
    std::_Exit(2);
}

void read_failure(const std::string& word, const std::string& value, Settings& s) {
    const size_t colon = value.find(':');
    if (colon == std::string::npos) refuse(word);
    char* end = nullptr;
    s.failing = value.substr(0, colon);
    s.failing_call = std::strtol(value.c_str() + colon + 1, &end, 10);
    if (*end == ':') s.failure = cudaError_t(std::strtol(end + 1, &end, 10));
    if (*end || s.failing_call < 1 || s.failure == cudaSuccess) refuse(word);
}

void read_word(const std::string& word, Settings& s) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals),
                      value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "report") {
        s.report = value;
        return;
    }
    if (name == "fail") return read_failure(word, value, s);
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end || number < 0) refuse(word);
    if (name == "gpus" && number <= most_gpus)
        s.gpus = int(number);
    else if (name == "memory")
        s.memory = size_t(number) << 20;
    else if (name == "rate")
        s.bytes_per_second = double(number) * 1e6;
    else if (name == "peers")
        s.peers = number != 0;
    else if (name == "delays")
        s.delays = unsigned(number);
    else if (name == "measured")
        s.measured_us = double(number);
    else if (name == "instant")
        s.instant = number != 0;
    else if (name == "driver")
        s.driver = int(number);
    else
        refuse(word);
}

Settings read_settings() {
    Settings out;
    const char* text = std::getenv("EMULATED_CUDA");
    std::string word;
    for (const char* at = text ? text : "";; ++at) {
        if (*at && *at != ' ') {
            word += *at;
            continue;
        }
        if (!word.empty()) read_word(word, out);
        word.clear();
        if (!*at) return out;
    }
}

struct Block {
    int device;
    size_t bytes;
};
struct Link {
    std::mutex mutex;
    Clock::time_point free;
    size_t bytes = 0;
};

// Never destroyed: threads of the program may outlive everything else.
struct State {
    std::mutex functions_mutex;
    std::vector<Function*> functions;
    std::array<std::atomic<int>, most_gpus> errors{};
    std::array<std::atomic<long>, most_gpus> kernels{};
    std::atomic<long> all_kernels{0};

    std::shared_mutex memory_mutex;
    std::map<const char*, Block> blocks;   // by address
    std::map<const char*, size_t> pinned;  // likewise
    std::array<size_t, most_gpus> used{};

    std::array<std::array<Link, most_gpus + 1>, most_gpus + 1> links;

    std::mutex streams_mutex;
    std::vector<Stream*> streams;
    std::array<Stream*, most_gpus> own{};
};
State& state() {
    static auto* const instance = new State;
    return *instance;
}

thread_local cudaError_t last_error = cudaSuccess;

// The first element whose bytes begin at or before `memory`, if it contains all `bytes`.
template <class Map, class Size>
auto around(const Map& map, const void* memory, size_t bytes, Size size) {
    const char* const begin = static_cast<const char*>(memory);
    auto found = map.upper_bound(begin);
    if (found == map.begin()) return map.end();
    --found;
    return begin + bytes <= found->first + size(found->second) ? found : map.end();
}

size_t in_pages(size_t bytes) { return (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096; }

}  // namespace

const Settings& settings() {
    static const auto* const read =
        new Settings(read_settings());  // the report needs it at the end
    return *read;
}

// --- calls ---

Function::Function(const char* name) : name_(name) {
    std::lock_guard lock(state().functions_mutex);
    state().functions.push_back(this);
}

cudaError_t Function::call() {
    const long number = ++calls_;
    if (settings().failing_call != number || settings().failing != name_) return cudaSuccess;
    return failed(settings().failure);
}

cudaError_t failed(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t take_last_error() { return std::exchange(last_error, cudaSuccess); }

// Runs at the exit of the program; not after _exit or a signal.
__attribute__((destructor)) void write_report() {
    if (settings().report.empty()) return;
    std::string path = settings().report;
    if (const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK"))
        path += "." + std::string(rank);
    std::FILE* const file = std::fopen(path.c_str(), "w");
    if (!file) return;
    for (const Function* f : state().functions)
        std::fprintf(file, "%s %ld\n", f->name_, f->calls_.load());
    for (int d = 0; d < settings().gpus; ++d)
        std::fprintf(file, "kernels_%d %ld\n", d, state().kernels[size_t(d)].load());
    for (int a = host; a < settings().gpus; ++a)
        for (int b = host; b < settings().gpus; ++b)
            std::fprintf(file, "bytes_%d_%d %zu\n", a, b,
                         state().links[size_t(a + 1)][size_t(b + 1)].bytes);
    std::fclose(file);
}

// --- devices ---

int& current_device() {
    thread_local int device = 0;
    return device;
}

cudaError_t error_of(int device) { return cudaError_t(state().errors[size_t(device)].load()); }
void set_error(int device, cudaError_t error) { state().errors[size_t(device)] = int(error); }
void count_kernel(int device) { ++state().kernels[size_t(device)]; }
bool kernel_fails() {
    const long number = ++state().all_kernels;
    return settings().failing == "kernel" && settings().failing_call == number;
}

// --- memory ---

void* allocate(int device, size_t bytes) {
    std::lock_guard lock(state().memory_mutex);
    size_t& used = state().used[size_t(device)];
    if (used + in_pages(bytes) > settings().memory) return nullptr;
    void* const memory = mmap(nullptr, in_pages(bytes), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    used += in_pages(bytes);
    state().blocks[static_cast<char*>(memory)] = {device, bytes};
    return memory;
}

bool release(void* memory) {
    std::lock_guard lock(state().memory_mutex);
    const auto found = state().blocks.find(static_cast<char*>(memory));
    if (found == state().blocks.end()) return false;
    const Block block = found->second;
    state().used[size_t(block.device)] -= in_pages(block.bytes);
    state().blocks.erase(found);
    munmap(memory, in_pages(block.bytes));  // a later use ends the program
    return true;
}

size_t memory_used(int device) {
    std::shared_lock lock(state().memory_mutex);
    return state().used[size_t(device)];
}

int device_of(const void* memory, size_t bytes) {
    std::shared_lock lock(state().memory_mutex);
    const auto size = [](const Block& block) { return block.bytes; };
    if (const auto found = around(state().blocks, memory, bytes, size);
        found != state().blocks.end())
        return found->second.device;
    // The start of another block's bytes means that it runs past the end.
    return around(state().blocks, memory, 1, size) == state().blocks.end() ? host : -2;
}

bool pin(void* memory, size_t bytes) {
    std::lock_guard lock(state().memory_mutex);
    return state().pinned.emplace(static_cast<char*>(memory), bytes).second;
}
bool unpin(void* memory) {
    std::lock_guard lock(state().memory_mutex);
    return state().pinned.erase(static_cast<char*>(memory)) > 0;
}
bool is_pinned(const void* memory, size_t bytes) {
    std::shared_lock lock(state().memory_mutex);
    const auto size = [](size_t n) { return n; };
    return around(state().pinned, memory, bytes, size) != state().pinned.end();
}

void copy(void* to, const void* from, size_t bytes) {
    const int source = device_of(from, bytes), target = device_of(to, bytes);
    std::memcpy(to, from, bytes);
    Link& link = state().links[size_t(source + 1)][size_t(target + 1)];
    Clock::time_point end;
    {
        std::lock_guard lock(link.mutex);
        link.bytes += bytes;
        if (settings().bytes_per_second <= 0) return;
        const std::chrono::duration<double> time(double(bytes) / settings().bytes_per_second);
        link.free =
            std::max(link.free, Clock::now()) + std::chrono::duration_cast<Clock::duration>(time);
        end = link.free;
    }
    std::this_thread::sleep_until(end);
}

// --- streams ---

Stream::Stream(int on) : device(on), random_(settings().delays), thread_([this] { run(); }) {
    std::lock_guard lock(state().streams_mutex);
    random_ = random_ * 1000003 + state().streams.size() + 1;
    state().streams.push_back(this);
}

Stream::~Stream() {
    {
        std::lock_guard lock(state().streams_mutex);
        std::erase(state().streams, this);
    }
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void Stream::put(std::function<void()> work) {
    if (settings().instant) return work();
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
}

void Stream::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Stream::run() {
    current_device() = device;
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const std::function<void()> work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        lock.unlock();
        if (settings().delays) {
            random_ = random_ * 6364136223846793005u + 1442695040888963407u;
            // Mostly short, so that the order changes and the run does not become slow.
            const uint64_t us = (random_ >> 33) % 2000;
            if ((random_ >> 48) % 8 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(us));
        }
        work();
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

Stream& stream_of(cudaStream_t stream) {
    if (stream) return *reinterpret_cast<Stream*>(stream);
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    Stream*& own = state().own[size_t(current_device())];
    if (!own) own = new Stream(current_device());
    return *own;
}

cudaStream_t new_stream() { return reinterpret_cast<cudaStream_t>(new Stream(current_device())); }
void delete_stream(cudaStream_t stream) { delete reinterpret_cast<Stream*>(stream); }

void wait_for_device(int device) {
    std::vector<Stream*> all;
    {
        std::lock_guard lock(state().streams_mutex);
        for (Stream* stream : state().streams)
            if (stream->device == device) all.push_back(stream);
    }
    for (Stream* stream : all) stream->wait();
}

}  // namespace emulated
