#include "engine/machine/control_groups.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace nn {
namespace {

namespace fs = std::filesystem;

void add_groups(const fs::path& root, const std::string& group, bool is_version_2,
                std::vector<ControlGroup>* out) {
    std::error_code ignored;
    fs::path folder = root / fs::path(group).relative_path();
    // A container sees its own group as the root, by whatever path the system names it.
    if (group.find("..") != std::string::npos || !fs::exists(folder, ignored)) folder = root;
    for (;; folder = folder.parent_path()) {
        if (!folder.has_filename()) continue;  // after a slash at the end
        out->push_back({folder, is_version_2});
        if (folder == root || !folder.has_relative_path()) return;
    }
}

// The numbers at the beginning of a file; those that it lacks ("max") are 0.
std::pair<double, double> numbers_in(const fs::path& path) {
    std::ifstream file(path);
    double first = 0, second = 0;
    if (file >> first) file >> second;
    return {first, second};
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const fs::path& root,
                                         const fs::path& groups) {
    std::vector<ControlGroup> out;
    std::ifstream file(groups);
    for (std::string line; std::getline(file, line);) {  // number:controllers:/path
        std::istringstream parts(line);
        std::string number, controllers, path;
        std::getline(parts, number, ':');
        std::getline(parts, controllers, ':');
        std::getline(parts, path);
        if (controllers.empty())
            add_groups(root, path, true, &out);
        else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos)
            add_groups(root / controller, path, false, &out);
    }
    return out;
}

double cpu_quota(const std::vector<ControlGroup>& groups) {
    double least = 0;
    for (const ControlGroup& group : groups) {
        auto [quota, period] = group.is_version_2 ? numbers_in(group.folder / "cpu.max")
                                                  : numbers_in(group.folder / "cpu.cfs_quota_us");
        if (!group.is_version_2) period = numbers_in(group.folder / "cpu.cfs_period_us").first;
        if (quota <= 0 || period <= 0) continue;  // -1 in version 1: no limit
        least = least == 0 ? quota / period : std::min(least, quota / period);
    }
    return least;
}

}  // namespace nn
