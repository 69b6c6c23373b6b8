#include "engine/machine/memory_limit.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace nn {
namespace {

namespace fs = std::filesystem;

// The number in a file, or 0 if it has none ("max").
int64_t read_number(const fs::path& path) {
    std::ifstream file(path);
    int64_t value = 0;
    return file >> value ? value : 0;
}

// The number after a name in a file of "name number" lines.
int64_t read_entry(const fs::path& path, const std::string& name) {
    std::ifstream file(path);
    std::string word;
    int64_t value = 0;
    while (file >> word >> value)
        if (word == name) return value;
    return 0;
}

struct Names {
    const char *limit, *usage, *inactive, *active;
};
constexpr Names version_2 = {"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr Names version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file"};

// The bytes that a group and its parents, up to `root`, still allow; `room` if none has a limit.
int64_t room_in_groups(const fs::path& root, const std::string& group, const Names& names,
                       int64_t room) {
    fs::path folder = root / fs::path(group).relative_path();
    if (!fs::exists(folder / names.usage)) folder = root;  // a container sees its own group there
    for (;; folder = folder.parent_path()) {
        if (const int64_t limit = read_number(folder / names.limit)) {
            const fs::path stat = folder / "memory.stat";
            const int64_t cached =
                read_entry(stat, names.inactive) + read_entry(stat, names.active);
            room = std::min(room, limit - read_number(folder / names.usage) + cached);
        }
        if (folder == root || !folder.has_relative_path()) return room;
    }
}

int64_t available_on_machine() {
    std::ifstream info("/proc/meminfo");
    long long kib = 0;
    for (std::string line; std::getline(info, line);)
        if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kib) == 1) break;
    return kib * 1024;
}

}  // namespace

int64_t default_budget() {
    int64_t room = available_on_machine();
    const fs::path root = "/sys/fs/cgroup";
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
        std::istringstream parts(line);
        std::string number, controllers, path;
        std::getline(parts, number, ':');
        std::getline(parts, controllers, ':');
        std::getline(parts, path);
        if (controllers.empty())
            room = room_in_groups(root, path, version_2, room);
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
            room = room_in_groups(root / "memory", path, version_1, room);
    }
    constexpr int64_t minimum = 64 << 20;  // enough to report errors
    return std::max(minimum, room / 10 * 9);
}

}  // namespace nn
