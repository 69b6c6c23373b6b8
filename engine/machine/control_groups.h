// The control groups of this process, in versions 1 and 2: where their limits stand.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace nn {

struct ControlGroup {
    std::filesystem::path folder;
    bool is_version_2;
};
// The groups of a controller such as "memory": that of this process, then those around it. root,
// groups: other paths than /sys/fs/cgroup and /proc/self/cgroup, for tests.
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::filesystem::path& root = "/sys/fs/cgroup",
                                         const std::filesystem::path& groups = "/proc/self/cgroup");

// The cores that the quotas of these groups allow: the least; 0 without a quota.
double cpu_quota(const std::vector<ControlGroup>& groups);

}  // namespace nn
