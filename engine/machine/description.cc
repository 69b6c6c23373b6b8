#include "engine/machine/description.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "engine/base/error.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"

namespace nn {
namespace {

// Every setting of a description, with its unit ("" for a plain number).
struct Setting {
    const char *name, *unit;
};
constexpr Setting machine_settings[] = {
    {"ranks", ""},             // processes; all other settings are per process
    {"rank_link", "B/s"},      // each way between a rank and the others
    {"cpus", ""},              // CPU workers
    {"ram", "B"},              // bytes of host memory for tiles
    {"gflops", ""},            // f32 products of one CPU worker
    {"bf16_gflops", ""},       // bf16 products; default: as f32
    {"bandwidth", "B/s"},      // of a copy by one CPU worker
    {"gpus", ""},              //
    {"gpu_memory", "B"},       // of each GPU
    {"gpu_gflops", ""},        // bf16 products of one GPU
    {"gpu_bandwidth", "B/s"},  // of a copy in its memory, read and written
    {"gpu_multiprocessors", ""},
    {"gpu_link", "B/s"},    // each way between RAM and a GPU
    {"disk", "B"},          //
    {"disk_read", "B/s"},   //
    {"disk_write", "B/s"},  //
};

std::string known_settings() {
    std::string out;
    for (const Setting& s : machine_settings)
        out += (out.empty() ? "" : ", ") + std::string(s.name);
    return out;
}

// "512GB", "50GB/s", "64": decimal units.
double parse_number(const Setting& setting, const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    std::string unit = end;
    double factor = 1;
    if (*setting.unit && !unit.empty()) {
        const size_t power = std::string("kMGTP").find(unit[0]);
        for (size_t i = 0; power != std::string::npos && i <= power; ++i) factor *= 1000;
        if (power != std::string::npos) unit.erase(0, 1);
        if (unit == setting.unit) unit.clear();
    }
    if (end == text.c_str() || !unit.empty() || !(value > 0) || value * factor > 1e18)
        fail("machine: %s is '%s'; a number above 0%s is needed", setting.name, text.c_str(),
             *setting.unit ? format(", such as 80G%s,", setting.unit).c_str() : "");
    return value * factor;
}

using Numbers = std::map<std::string, double>;

Numbers parse(const std::string& text) {
    Numbers out;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const Setting* found = nullptr;
        for (const Setting& s : machine_settings)
            if (name == s.name) found = &s;
        if (!found || equals == std::string::npos)
            fail("machine: '%s' is not NAME=VALUE with one of the names %s", word.c_str(),
                 known_settings().c_str());
        out[name] = parse_number(*found, word.substr(equals + 1));
    }
    return out;
}

std::string text_of_file(const std::string& path) {
    std::error_code ignored;
    std::ifstream file;
    if (std::filesystem::is_regular_file(path, ignored)) file.open(path);  // a pipe may block
    if (!file.is_open()) fail("machine: cannot read '%s'; a regular file is needed", path.c_str());
    std::string out;
    for (std::string line; std::getline(file, line);) out += line.substr(0, line.find('#')) + "\n";
    return out;
}

// The defaults of settings are the values of the host.
Machine machine_of(const Numbers& numbers) {
    const auto given = [&](const char* name, double default_value) {
        const auto at = numbers.find(name);
        return at == numbers.end() ? default_value : at->second;
    };
    const Machine& here = host();
    Machine out;
    out.ranks = int(given("ranks", here.ranks));
    if (ranks().several() && out.ranks != here.ranks)
        fail("machine: ranks=%d is described, but %d ranks run", out.ranks, here.ranks);
    out.rank_link = given("rank_link", 0);
    out.nodes.push_back(
        {NodeKind::ram, 0, int64_t(given("ram", double(here.bytes(NodeKind::ram))))});
    Rates cpu;
    cpu.f32 = cpu.tf32 = given("gflops", 0) * 1e9, cpu.f64 = cpu.f32 / 2;
    cpu.bf16 = given("bf16_gflops", cpu.f32 * 1e-9) * 1e9;
    cpu.bytes = given("bandwidth", cpu.f32 > 0 ? 1e10 : 0), cpu.start = 1e-6;
    out.workers.push_back({Device::cpu, 0, int(given("cpus", here.count(Device::cpu))), cpu});
    Rates gpu;
    gpu.bf16 = given("gpu_gflops", 0) * 1e9;
    gpu.tf32 = gpu.bf16 / 2, gpu.f32 = gpu.bf16 / 16, gpu.f64 = gpu.f32;
    gpu.bytes = given("gpu_bandwidth", 0), gpu.start = 5e-6;
    gpu.multiprocessors = std::max(1, int(given("gpu_multiprocessors", 132)));  // of an H100
    for (int i = 0; i < int(given("gpus", here.count(Device::cuda))); ++i) {
        const int node = int(out.nodes.size());
        const double link = given("gpu_link", 0);
        out.nodes.push_back({NodeKind::gpu, i, int64_t(given("gpu_memory", 0))});
        out.workers.push_back({Device::cuda, node, 1, gpu});
        out.links.push_back({0, node, link});
        out.links.push_back({node, 0, link});
    }
    if (numbers.count("disk")) {
        const int node = int(out.nodes.size());
        out.nodes.push_back({NodeKind::disk, 0, int64_t(given("disk", 0))});
        out.links.push_back({node, 0, given("disk_read", 0)});
        out.links.push_back({0, node, given("disk_write", 0)});
    }
    return out;
}

std::optional<Machine>& described() {
    static std::optional<Machine> machine;
    return machine;
}

}  // namespace

void describe_machine(const std::string& text) {
    const bool is_file = !text.empty() && text.find('=') == std::string::npos;
    if (text.empty())
        described().reset();
    else
        described() = machine_of(parse(is_file ? text_of_file(text) : text));
}

bool machine_is_described() {
    machine();
    return described().has_value();
}

const Machine& machine() {
    static bool environment_read = false;
    if (!std::exchange(environment_read, true))
        if (const char* text = std::getenv("NNLUA_MACHINE")) describe_machine(text);
    return described() ? *described() : host();
}

}  // namespace nn
