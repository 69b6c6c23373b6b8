#include "engine/machine/memory_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

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

// The bytes that the hard limits of this process allow: in total, and still unused.
struct Room {
    int64_t limit = unlimited, now = unlimited;
    void restrict(int64_t bytes, int64_t used) {
        limit = std::min(limit, bytes), now = std::min(now, bytes - used);
    }
};

// Restricts the room to that of a group and its parents, up to `root`.
void restrict_to_groups(const fs::path& root, const std::string& group, const Names& names,
                        Room* room) {
    fs::path folder = root / fs::path(group).relative_path();
    if (!fs::exists(folder / names.usage)) folder = root;  // a container sees its own group there
    for (;; folder = folder.parent_path()) {
        if (const int64_t limit = read_number(folder / names.limit)) {
            const fs::path stat = folder / "memory.stat";
            const int64_t cached =
                read_entry(stat, names.inactive) + read_entry(stat, names.active);
            room->restrict(limit, std::max<int64_t>(0, read_number(folder / names.usage) - cached));
        }
        if (folder == root || !folder.has_relative_path()) return;
    }
}

// The room in resident memory.
Room room_in_groups() {
    Room room;
    const fs::path root = "/sys/fs/cgroup";
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
        std::istringstream parts(line);
        std::string number, controllers, path;
        std::getline(parts, number, ':');
        std::getline(parts, controllers, ':');
        std::getline(parts, path);
        if (controllers.empty())
            restrict_to_groups(root, path, version_2, &room);
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
            restrict_to_groups(root / "memory", path, version_1, &room);
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

// A line of /proc/meminfo in bytes.
int64_t on_machine(const char* name) { return 1024 * read_entry("/proc/meminfo", name); }

}  // namespace

// What the process needs besides tiles, measured with 2 workers: 24 MB resident; each worker has
// a heap of 64 MB and a stack of 8 MB of address space, and OpenBLAS reserves 128 MB for it.
int64_t default_budget(int workers) {
    const auto within = [&](const Room& room, int64_t rest, int64_t rest_of_worker) {
        if (room.now == unlimited) return unlimited;
        return (room.now - rest - rest_of_worker * workers) / 20 * 19;
    };
    constexpr int64_t mb = 1'000'000;
    const int64_t available = on_machine("MemAvailable:");
    int64_t budget = available > 0 ? available / 10 * 9 : 64 * mb;
    budget = std::min(budget, within(room_in_groups(), 24 * mb, 8 * mb));
    budget = std::min(budget, within(room_of_resource(RLIMIT_AS, "VmSize:"), 60 * mb, 210 * mb));
    budget = std::min(budget, within(room_of_resource(RLIMIT_DATA, "VmData:"), 40 * mb, 140 * mb));
    return std::max<int64_t>(budget, 0);
}

int64_t largest_budget() {
    int64_t most = on_machine("MemTotal:") + on_machine("SwapTotal:");
    if (most == 0) most = unlimited;
    for (const Room& room : {room_in_groups(), room_of_resource(RLIMIT_AS, "VmSize:"),
                             room_of_resource(RLIMIT_DATA, "VmData:")})
        most = std::min(most, room.limit);
    return most;
}

}  // namespace nn
