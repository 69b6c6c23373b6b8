// The limits of control groups: folders as the kernel shows them, by its documents
// (admin-guide/cgroup-v1/, admin-guide/cgroup-v2).
#include "engine/machine/control_groups.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace {

namespace fs = std::filesystem;

class Folder {
public:
    explicit Folder(const std::map<std::string, std::string>& files) {
        for (const auto& [name, text] : files) {
            fs::create_directories((path / name).parent_path());
            std::ofstream(path / name) << text << "\n";
        }
    }
    ~Folder() { fs::remove_all(path); }
    double quota() const {
        return nn::cpu_quota(nn::control_groups("cpu", path / "groups", path / "self"));
    }
    const fs::path path =
        fs::temp_directory_path() / ("nnlua-groups-" + std::to_string(::getpid()));
};

double quota_of(const std::map<std::string, std::string>& files) { return Folder(files).quota(); }

}  // namespace

TEST_CASE("the least quota of nested control groups counts, in both versions") {
    CHECK(quota_of({{"self", "0::/a/b"},
                    {"groups/a/cpu.max", "150000 100000"},
                    {"groups/a/b/cpu.max", "400000 100000"}}) == Approx(1.5));
    CHECK(quota_of({{"self", "0::/a/b"},
                    {"groups/a/cpu.max", "max 100000"},
                    {"groups/a/b/cpu.max", "25000 50000"}}) == Approx(0.5));
    CHECK(quota_of({{"self", "5:cpu,cpuacct:/a/b\n4:memory:/c\n0::/d"},
                    {"groups/cpu/a/cpu.cfs_quota_us", "350000"},
                    {"groups/cpu/a/cpu.cfs_period_us", "100000"},
                    {"groups/cpu/a/b/cpu.cfs_quota_us", "-1"},
                    {"groups/cpu/a/b/cpu.cfs_period_us", "100000"}}) == Approx(3.5));
}

TEST_CASE("a container sees its own control group as the root") {
    CHECK(quota_of({{"self", "0::/"}, {"groups/cpu.max", "200000 100000"}}) == Approx(2));
    CHECK(quota_of({{"self", "0::/docker/1234"}, {"groups/cpu.max", "200000 100000"}}) ==
          Approx(2));
    CHECK(quota_of({{"self", "0::/../other"}, {"groups/cpu.max", "200000 100000"}}) == Approx(2));
    CHECK(quota_of({{"self", "3:cpu:/docker/1234"},
                    {"groups/cpu/cpu.cfs_quota_us", "50000"},
                    {"groups/cpu/cpu.cfs_period_us", "100000"}}) == Approx(0.5));
}

TEST_CASE("without control groups or a quota there is no limit") {
    CHECK(quota_of({}) == 0);
    CHECK(quota_of({{"self", "0::/a"}, {"groups/a/cpu.max", "max 100000"}}) == 0);
    CHECK(quota_of({{"self", "3:cpu:/"},
                    {"groups/cpu/cpu.cfs_quota_us", "-1"},
                    {"groups/cpu/cpu.cfs_period_us", "100000"}}) == 0);
    CHECK(quota_of({{"self", "3:cpuacct:/\n4:cpuset:/"}}) == 0);
}
