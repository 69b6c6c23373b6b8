#include "engine/machine/memory_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "engine/machine/control_groups.h"
#include "engine/machine/ranks.h"

namespace nn {
namespace {

namespace fs = std::filesystem;

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

// The number in a file, or 0 if it has none ("max").
int64_t read_number(const fs::path& path) {
    std::ifstream file(path);
    int64_t value = 0;
    return file >> value ? value : 0;
}

// The number after a name at the beginning of a line, or 0.
int64_t read_entry(const fs::path& path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        int64_t value = 0;
        if (words >> word && word == name && words >> value) return value;
    }
    return 0;
}

struct Names {
    const char *limit, *usage, *inactive, *active;
};
constexpr Names version_2 = {"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr Names version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file"};

// The bytes that the limits of this process allow: in total, and still unused.
struct Room {
    int64_t limit = unlimited, now = unlimited;
    void restrict(int64_t bytes, int64_t used) {
        limit = std::min(limit, bytes), now = std::min(now, bytes - used);
    }
};

// The room in resident memory.
Room room_in_groups() {
    Room room;
    for (const auto& [folder, is_version_2] : control_groups("memory")) {
        const Names& names = is_version_2 ? version_2 : version_1;
        const int64_t limit = read_number(folder / names.limit);
        if (limit == 0) continue;
        const fs::path stat = folder / "memory.stat";
        const int64_t cached = read_entry(stat, names.inactive) + read_entry(stat, names.active);
        room.restrict(limit, std::max<int64_t>(0, read_number(folder / names.usage) - cached));
    }
    return room;
}

// The room within a resource limit of virtual memory; `used`: the line of /proc/self/status.
Room room_of_resource(int resource, const char* used) {
    Room room;
    rlimit limit;
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < uint64_t(unlimited))
        room.restrict(int64_t(limit.rlim_cur), 1024 * read_entry("/proc/self/status", used));
    return room;
}
Room room_in_address_space() { return room_of_resource(RLIMIT_AS, "VmSize:"); }
Room room_of_data() { return room_of_resource(RLIMIT_DATA, "VmData:"); }

// A kind of limit, and the memory within it that the process needs besides tiles: what it takes
// when the workers start, and for each worker.
struct Limit {
    Room (*room)();
    int64_t rest, rest_of_worker;
    int64_t at_start = unlimited;  // the unused room when the workers started
};
// Measured with 2 workers: 32 MB resident with oneDNN; each worker has a heap of 64 MB and a stack
// of 8 MB of address space, and OpenBLAS reserves 128 MB for it at its first product.
constexpr int64_t mb = 1'000'000;
Limit limits[] = {{room_in_groups, 32 * mb, 8 * mb},
                  {room_in_address_space, 60 * mb, 210 * mb},
                  {room_of_data, 40 * mb, 140 * mb}};

// The unused room within a limit, less the part of the rest that is not taken yet.
int64_t available_within(const Limit& limit, int workers, int64_t tiles) {
    const int64_t now = limit.room().now;
    if (now == unlimited) return unlimited;
    int64_t rest = limit.rest + limit.rest_of_worker * workers;
    if (limit.at_start != unlimited) {
        const int64_t taken = limit.at_start - now - tiles;
        rest = std::max<int64_t>(0, rest - std::max<int64_t>(0, taken));
    }
    return (now - rest) / 20 * 19;
}

// A line of /proc/meminfo in bytes.
int64_t on_machine(const char* name) { return 1024 * read_entry("/proc/meminfo", name); }

}  // namespace

int64_t available_memory(int workers, int64_t tiles) {
    const int64_t free = on_machine("MemAvailable:");
    int64_t out = free > 0 ? free / 10 * 9 : 64 * mb;
    out /= ranks().on_host;
    for (const Limit& limit : limits) {
        const int64_t within = available_within(limit, workers, tiles);
        const bool is_shared = limit.room == room_in_groups && within != unlimited;
        out = std::min(out, is_shared ? within / ranks().on_host : within);
    }
    return std::max<int64_t>(out, 0);
}

void workers_start() {
    for (Limit& limit : limits) limit.at_start = limit.room().now;
}

void workers_stopped() {
    for (Limit& limit : limits) limit.at_start = unlimited;
}

ResidentMemory resident_memory() {
    const char* const status = "/proc/self/status";
    return {1024 * read_entry(status, "VmRSS:"), 1024 * read_entry(status, "VmHWM:")};
}

int64_t rest_of_process(int workers, int64_t tiles, int64_t most_tiles,
                        const EngineRecords& records) {
    // Operands with which a run measures the rate of products (lua/nn/train/rate.lua), when no task
    // is in flight.
    constexpr int64_t operands_of_worker = 13 * mb;
    constexpr int64_t bytes_per_table_byte = 512;  // without huge pages
    return resident_memory().now - tiles + most_tiles / bytes_per_table_byte +
           limits[0].rest_of_worker * workers + records.lasting +
           std::max(records.in_flight, operands_of_worker * workers);
}

int64_t largest_budget() {
    int64_t most = on_machine("MemTotal:") + on_machine("SwapTotal:");
    if (most == 0) most = unlimited;
    for (const Limit& limit : limits) most = std::min(most, limit.room().limit);
    return most;
}

}  // namespace nn
