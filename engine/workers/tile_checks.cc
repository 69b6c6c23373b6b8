#include "engine/workers/tile_checks.h"

#include <libdeflate.h>
#include <starpu.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/planted_faults.h"
#include "engine/workers/gpu.h"

namespace nn::tile_checks {
namespace {

struct Noted {
    Value value;
    uint32_t sum;
    const char* by;
};
struct Memory {
    const void* address;
    int gpu;
};
struct State {
    std::mutex mutex;
    std::unordered_map<const void*, Noted> notes;  // by the place
    std::unordered_map<StarpuHandle, Memory> shared;
    std::unordered_map<const starpu_task*, std::vector<Operand>> expected;
};
// Never destroyed: tasks may outlive everything else.
State& state() {
    static auto* const instance = new State;
    return *instance;
}

// With the mutex. Handles that share memory are one place.
const void* place_of(StarpuHandle handle) {
    const auto found = state().shared.find(handle);
    return found == state().shared.end() ? handle : found->second.address;
}

const Noted* noted_at(StarpuHandle handle) {  // with the mutex
    const auto found = state().notes.find(place_of(handle));
    return found == state().notes.end() ? nullptr : &found->second;
}

std::string wrong_value(Value needed, const Noted& found) {
    const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
    if (found.value.tile != needed.tile)
        return format("tile %llu is needed, but its place has tile %llu, by %s",
                      number(needed.tile), number(found.value.tile), found.by);
    return format(
        "tile %llu is needed as of write %llu, but its place has that of write %llu, by %s",
        number(needed.tile), number(needed.write), number(found.value.write), found.by);
}

// A buffer of a task, which runs on the calling worker.
struct Buffer {
    StarpuHandle handle;
    Operand expected;
    bool reads, writes;
    Bytes bytes;
};
std::vector<Buffer> buffers_of(const starpu_task* task, const std::vector<Operand>& expected) {
    const auto worker = unsigned(starpu_worker_get_id());
    const unsigned node = starpu_worker_get_memory_node(worker);
    const bool is_gpu = starpu_worker_get_type(int(worker)) == STARPU_CUDA_WORKER;
    const int gpu = is_gpu ? starpu_worker_get_devid(int(worker)) : -1;
    std::vector<Buffer> out;
    for (size_t i = 0; i < expected.size(); ++i) {
        const StarpuHandle handle = STARPU_TASK_GET_HANDLE(task, i);
        const auto mode = STARPU_TASK_GET_MODE(task, i);
        const void* const memory = starpu_data_handle_to_pointer(handle, node);
        out.push_back({handle,
                       expected[i],
                       (mode & STARPU_R) != 0,
                       (mode & STARPU_W) != 0,
                       {memory, expected[i].bytes, gpu}});
    }
    return out;
}

// Of the task that runs on the calling worker; none if it has nothing to check. is_over: forgets
// what is expected.
std::vector<Buffer> buffers(bool is_over) {
    const starpu_task* const task = starpu_task_get_current();
    std::vector<Operand> expected;
    {
        const std::lock_guard lock(state().mutex);
        const auto found = state().expected.find(task);
        if (found == state().expected.end()) return {};
        expected = found->second;
        if (is_over) state().expected.erase(found);
    }
    return buffers_of(task, expected);
}

// The value in a place gets another number.
void rename(StarpuHandle place, Value from, Value to) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().notes.find(place_of(place));
    if (found != state().notes.end() && found->second.value.write == from.write)
        found->second.value = to;
}

}  // namespace

Value next_value(Tile& tile) {
    static uint64_t writes = 0;
    if (!on()) return {};
    tile.write = ++writes;
    return value_of(tile);
}

void note_memory(StarpuHandle handle, const void* memory, int gpu) {
    if (!on()) return;
    const std::lock_guard lock(state().mutex);
    state().shared[handle] = {memory, gpu};
}

void end_handle(StarpuHandle handle) {
    if (!on()) return;
    const std::lock_guard lock(state().mutex);
    state().notes.erase(place_of(handle));
    state().shared.erase(handle);
}

int gpu_of(StarpuHandle handle) {
    const std::lock_guard lock(state().mutex);
    const auto found = state().shared.find(handle);
    return found == state().shared.end() ? -1 : found->second.gpu;
}

uint32_t sum_of(const Bytes& bytes) {
    if (bytes.gpu < 0) return libdeflate_crc32(0, bytes.memory, bytes.count);
    std::vector<char> copy(bytes.count);
    const std::string error =
        copy_beside_kernels(bytes.gpu, copy.data(), bytes.memory, bytes.count);
    if (!error.empty()) fail("a tile cannot be copied from a GPU to check it: %s", error.c_str());
    return libdeflate_crc32(0, copy.data(), copy.size());
}

std::string problem(StarpuHandle place, Value value, const Bytes& bytes) {
    if (!on() || value.write == 0) return "";
    Noted noted;
    {
        const std::lock_guard lock(state().mutex);
        const Noted* const found = noted_at(place);
        if (!found)
            return format("tile %llu is needed, but nothing has written it where it is read",
                          static_cast<unsigned long long>(value.tile));
        if (found->value.write != value.write) return wrong_value(value, *found);
        noted = *found;
    }
    const uint32_t sum = sum_of(bytes);
    if (sum == noted.sum) return "";
    return format("tile %llu has changed since %s wrote it: its CRC-32 was %08x and is %08x",
                  static_cast<unsigned long long>(value.tile), noted.by, noted.sum, sum);
}

void need(StarpuHandle place, Value value, const Bytes& bytes) {
    if (const std::string text = problem(place, value, bytes); !text.empty())
        fail("%s", text.c_str());
}

void note(StarpuHandle place, Value value, const Bytes& bytes, const char* by) {
    if (!on() || value.write == 0) return;
    const uint32_t sum = sum_of(bytes);
    const std::lock_guard lock(state().mutex);
    state().notes[place_of(place)] = {value, sum, by};
}

void note_same(StarpuHandle place, StarpuHandle as, const char* by) {
    if (!on()) return;
    const std::lock_guard lock(state().mutex);
    const Noted* const found = noted_at(as);
    if (!found) return;
    Noted noted = *found;
    noted.by = by;
    state().notes[place_of(place)] = noted;
}

bool sum_of(StarpuHandle place, Value value, uint32_t* sum) {
    const std::lock_guard lock(state().mutex);
    const Noted* const found = value.write ? noted_at(place) : nullptr;
    if (!found || found->value.write != value.write) return false;
    *sum = found->sum;
    return true;
}

void expect(const starpu_task* task, std::vector<Operand> operands) {
    const std::lock_guard lock(state().mutex);
    state().expected[task] = std::move(operands);
}

std::string problem_before_task(const char* op) {
    if (!on()) return "";
    const std::vector<Buffer> all = buffers(false);
    for (const Buffer& buffer : all)
        memory_uses::begin(starpu_task_get_current(), buffer.bytes.memory, buffer.bytes.count,
                           buffer.writes, format("a task of %s", op));
    for (const Buffer& buffer : all) {
        if (!buffer.reads) continue;
        const std::string text = problem(buffer.handle, buffer.expected.before, buffer.bytes);
        if (!text.empty()) return text;
    }
    return "";
}

void note_results(const char* op) {
    if (!on()) return;
    const std::vector<Buffer> all = buffers(true);
    for (const Buffer& buffer : all)
        if (buffer.writes) note(buffer.handle, buffer.expected.after, buffer.bytes, op);
    const std::string problem = memory_uses::end(starpu_task_get_current());
    if (!problem.empty()) fail("%s", problem.c_str());
    if (all.empty() || !planted::is_next(planted::tile_altered)) return;
    for (const Buffer& buffer : all)
        if (buffer.writes && buffer.bytes.gpu < 0)
            *static_cast<char*>(const_cast<void*>(buffer.bytes.memory)) ^= 1;
}

void note_kept() {
    if (!on()) return;
    for (const Buffer& buffer : buffers(true))
        if (buffer.reads && buffer.writes)
            rename(buffer.handle, buffer.expected.before, buffer.expected.after);
}

void forget_task() {
    if (!on()) return;
    buffers(true);
    memory_uses::end(starpu_task_get_current());
}

}  // namespace nn::tile_checks
