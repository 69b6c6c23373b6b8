#include "engine/residency/tier_settings.h"

#include <starpu.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/kept_file.h"
#include "engine/base/kept_numbers.h"
#include "engine/graph/context.h"
#include "engine/machine/description.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/memory/disk.h"
#include "engine/memory/disk_rate.h"
#include "engine/memory/stalls.h"
#include "engine/memory/striped_store.h"
#include "engine/residency/host_store.h"
#include "engine/residency/slots.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

struct Tiers {
    TierSettings settings;
    double measured_rate = 0;  // of the disk; 0: not known
    bool disk_is_measured = false;
    std::shared_ptr<Store> disk, pinned;
    bool slots_exist = false;
    bool were_chosen = false;
    int64_t largest_tile = 0;
    int64_t taken_from_starpu = 0;  // bytes of the GPU's memory that it leaves to slots
};
// Never destroyed: tiles may be freed while the process ends.
Tiers& state() {
    static auto* const instance = new Tiers;
    return *instance;
}

// A run goes on when its folder is removed: its files have no names. Then the closest folder above
// tells which file system it was.
std::string existing(std::filesystem::path folder) {
    for (std::error_code ignored; !std::filesystem::exists(folder, ignored);)
        folder = std::filesystem::absolute(folder).parent_path();
    return folder;
}

// The file system of a folder, until the machine starts anew.
std::string name_of_disk(const std::string& folder) {
    struct stat status = {};
    stat(existing(folder).c_str(), &status);
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
    return format("%llu %s", static_cast<unsigned long long>(status.st_dev), boot.c_str());
}

// What all folders have together, of a rate or of free space: each has a part of every tile, so the
// one with the least counts. Folders of one disk share what it has.
double of_all(const std::vector<std::string>& folders,
              const std::function<double(const std::string&)>& of_disk) {
    std::map<std::string, int> on_disk;
    for (const std::string& folder : folders) ++on_disk[name_of_disk(folder)];
    double least = std::numeric_limits<double>::infinity();
    for (const std::string& folder : folders)
        least = std::min(least, of_disk(folder) / on_disk[name_of_disk(folder)]);
    return least * double(folders.size());
}

int64_t free_space(const std::vector<std::string>& folders) {
    return int64_t(of_all(folders, [](const std::string& folder) {
        return double(std::filesystem::space(existing(folder)).available);
    }));
}

StoreUse use_of(const std::shared_ptr<Store>& store) {
    return store ? StoreUse{store->allocated_bytes(), store->totals()} : StoreUse{};
}

}  // namespace

const TierSettings& tiers() { return state().settings; }
bool tiers_were_chosen() { return state().were_chosen; }

// Whether plans are for a described GPU, and this machine has none.
static bool gpu_is_only_described() {
    return machine_is_described() && host().count(Device::cuda) == 0;
}

static int64_t memory_of_gpu() {
    return gpu_is_only_described() ? tile_bytes_on_gpus(machine())
                                   : node_memory(only_gpu().node).limit;
}

int64_t rest_of_gpu() { return memory_of_gpu() - tiers().bytes(NodeKind::gpu); }

std::shared_ptr<Store> pinned_ram() {
    auto& store = state().pinned;
    if (!store) store = std::make_shared<HostStore>(only_gpu().device);
    return store;
}

std::shared_ptr<Store> lowest_store() {
    if (!tiers().has_disk()) return pinned_ram();
    auto& store = state().disk;
    if (store) return store;
    std::vector<std::unique_ptr<Store>> disks;
    for (const std::string& folder : tiers().disk_folders)
        disks.push_back(std::make_unique<Disk>(Disk::Options{folder, tiers().disk_rate}));
    if (disks.size() == 1)
        store = std::move(disks[0]);
    else
        store = std::make_shared<StripedStore>(std::move(disks));
    return store;
}

void drop_stores() {
    state().disk.reset();
    state().pinned.reset();
    state().slots_exist = false;
    if (const int64_t bytes = std::exchange(state().taken_from_starpu, 0))
        starpu_memory_deallocate(unsigned(only_gpu().node), size_t(bytes));
}

// Small tiles and eager tasks need the rest of the GPU's memory.
static void check_bytes_of_gpu(int64_t bytes) {
    constexpr int64_t rest = int64_t(64) << 20;
    const int64_t memory = memory_of_gpu();
    if (bytes + rest > memory)
        fail(
            "memory.gpu: %s are too many, because %s of the GPU's %s must remain for small tiles; "
            "at most %lld bytes are possible",
            human_bytes(double(bytes)).c_str(), human_bytes(double(rest)).c_str(),
            human_bytes(double(memory)).c_str(),
            static_cast<long long>(std::max<int64_t>(0, memory - rest)));
}

// Leaves a part of the GPU's memory to slots, and the rest to StarPU.
static void take_from_starpu(int64_t bytes) {
    const auto count = first_streams().size();
    if (count != 1 && !gpu_is_only_described())
        fail(
            "memory.gpu plans the memory of one GPU for each process, but %zu are in use; start a "
            "rank for each of the host's %d GPUs (nnlua --ranks %d SCRIPT), or choose one with "
            "nn.devices{gpus=1}",
            count, gpus_of_host(), gpus_of_host());
    check_bytes_of_gpu(bytes);
    const NodeMemory memory = node_memory(only_gpu().node);
    if (starpu_memory_allocate(unsigned(only_gpu().node), size_t(bytes), 0) != 0)
        fail("memory.gpu: %s are not free, %s of %s are in use; set it before tensors are created",
             human_bytes(double(bytes)).c_str(), human_bytes(double(memory.used)).c_str(),
             human_bytes(double(memory.limit)).c_str());
    state().taken_from_starpu = bytes;
}

void prepare_for_slots() {
    state().slots_exist = true;
    if (tiers().on_gpu() && state().taken_from_starpu == 0)
        take_from_starpu(tiers().bytes(NodeKind::gpu));
}

void set_tiers(const TierSettings& settings) {
    if (state().taken_from_starpu)
        fail("memory.gpu was chosen before and cannot be changed in this process");
    if (settings.exist() && !settings.on_gpu() && running() && ranks().several() &&
        host().count(Device::cuda) == 0 && !state().were_chosen)
        fail("with several ranks, choose memory tiers before the first tensor is computed");
    if (state().disk || state().pinned || state().slots_exist)
        fail("memory tiers must be chosen before tiles are in slots or on disk");
    int64_t capacity = 0;
    if (settings.has_disk() && settings.bytes(NodeKind::ram) <= 0)
        fail("memory.ram: a number of bytes above the disk is needed");
    if (settings.bytes(NodeKind::ram) > 0) {
        if (!settings.has_disk()) fail("memory.disk: a folder is needed");
        for (const std::string& folder : settings.disk_folders) {
            if (std::ranges::count(settings.disk_folders, folder) > 1)
                fail("memory.disk: the folder '%s' is given twice", folder.c_str());
            prepare_disk_folder(folder, settings.disk_in_ram);
            Disk({folder, 0, 1});  // an error if files cannot be written there
        }
        capacity = free_space(settings.disk_folders);
    }
    if (settings.on_gpu())
        (gpu_is_only_described() ? check_bytes_of_gpu
                                 : take_from_starpu)(settings.bytes(NodeKind::gpu));
    if (settings.has_disk() || tiers().has_disk() || !settings.on_gpu()) {
        set_disk_capacity(capacity);
        set_budget(settings.bytes(NodeKind::ram));
    }
    measure_stalls(settings.exist() && !settings.on_gpu());
    state().settings = settings;
    state().were_chosen = state().were_chosen || settings.exist();
    nn::settings().gpu_tier = settings.exist() ? settings.bytes(NodeKind::gpu) : -1;
    state().disk_is_measured = false;
    state().measured_rate = 0;
}

// largest_tile: that eager tasks use.
static int64_t reserve_of(int64_t ram, int64_t largest_tile) {
    return std::max(ram / 32, 4 * largest_tile);
}

int64_t reserved_ram() { return reserve_of(tiers().bytes(NodeKind::ram), state().largest_tile); }

// Eager tasks may use the weights and moments of the program, which a plan does not create.
static int64_t largest_eager_tile(const Program& program) {
    int64_t largest = state().largest_tile;
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i)
            if (task.tiles[i]->kind == weights || task.tiles[i]->kind == optimizer_state)
                largest = std::max(largest, int64_t(task.tiles[i]->bytes));
    return largest;
}

int64_t staging_bytes(const Program& program) {
    constexpr int64_t at_once = 4;
    const int64_t exists = staging_buffer() ? staging_buffer()->bytes() : 0;
    int64_t largest = 0;
    for (const Task& task : program.tasks)
        if (task.is_transfer()) largest = std::max(largest, int64_t(task.tiles[0]->bytes));
    return std::max(exists, at_once * ((largest + slot_block - 1) / slot_block) * slot_block);
}

static int64_t bytes_of_all_tiles(const Program& program) {
    return admitted_bytes() + program.info.planned_bytes + program.info.temporary_bytes;
}
int64_t ram_without_plan(const Program& program) {
    const int64_t ram = tiers().bytes(NodeKind::ram);
    return bytes_of_all_tiles(program) + reserve_of(ram, largest_eager_tile(program)) / 2;
}

void note_eager_tile(int64_t bytes) {
    state().largest_tile = std::max(state().largest_tile, bytes);
}

static TierRates disk_rates(int workers) {
    constexpr double nominal_rate = 1e9, transfer_seconds = 1e-4;
    const double described = machine().link_to(NodeKind::disk);
    const double measured = state().measured_rate > 0 ? state().measured_rate : nominal_rate;
    const double share = described > 0 ? described : measured / ranks().on_host;
    const double limit = tiers().disk_rate * double(tiers().disk_folders.size());
    return {workers, limit > 0 ? limit : share, transfer_seconds};
}

int64_t disk_room() {
    if (machine_is_described() || !tiers().has_disk()) return 0;
    const auto& disk = state().disk;
    const int64_t free = free_space(tiers().disk_folders);
    const int64_t share = (free - free / 20) / ranks().on_host;
    return std::max<int64_t>(1, share + (disk ? disk->allocated_bytes() : 0));
}

static LevelLimits limits_of(const TierLevel& level, const Program& program) {
    constexpr double copy_seconds = 1e-5;
    if (level.kind == NodeKind::gpu) {
        constexpr double nominal_rate = 2.5e10;  // PCIe 4.0
        const GpuDevice gpu =
            gpu_is_only_described() ? GpuDevice{0, 0, 1, nominal_rate} : only_gpu();
        const double described = machine().link_to(NodeKind::gpu);
        const double rate = described > 0 ? described : gpu.link_rate;
        return {level.bytes,
                0,
                {gpu.streams, rate, copy_seconds, true},
                "the GPU's memory",
                "memory.gpu"};
    }
    const bool computes = !tiers().on_gpu();  // else tiles of other ranks pass through it
    const int workers = computes ? std::max(1, machine().count(Device::cpu)) : 1;
    const int64_t staging = computes ? 0 : staging_bytes(program);
    const auto reserve = [staging, largest = largest_eager_tile(program)](int64_t ram) {
        return reserve_of(ram, largest) + staging;
    };
    return {level.bytes, reserve(level.bytes), disk_rates(workers), "RAM", "memory.ram", reserve};
}

PlanLimits tier_limits(const Program& program) {
    PlanLimits out;
    for (const TierLevel& level : tiers().levels) {
        if (&level == &tiers().levels.front())
            static_cast<LevelLimits&>(out) = limits_of(level, program);
        else
            out.below.push_back(limits_of(level, program));
    }
    out.disk = disk_room();
    if (tiers().on_gpu())
        out.rest = rest_of_gpu();
    else
        out.all_tiles = bytes_of_all_tiles(program);
    return out;
}

// The rate of a folder's disk, measured now or before.
static double measured_rate(const std::string& folder, KeptNumbers& kept) {
    const std::string name = name_of_disk(folder);
    if (const std::optional<double> rate = kept.find(name)) return *rate;
    const double rate = measure_disk(folder);
    kept.keep(name, rate);
    kept.save();
    return rate;
}

// Without space for the measurement, on disk or in RAM, plans use the nominal rate. Transfers of
// the run report a broken disk.
void measure_tier_disk() {
    constexpr int64_t least_available = int64_t(256) << 20;
    Tiers& s = state();
    if (available(arena_taken()) < least_available) return;
    if (s.settings.disk_rate > 0 || std::exchange(s.disk_is_measured, true)) return;
    const FileLock one_at_a_time(lock_path("disks"));  // ranks would disturb each other
    KeptNumbers kept("disks", "", 1);
    const auto& folders = s.settings.disk_folders;
    try {
        s.measured_rate =
            of_all(folders, [&](const auto& folder) { return measured_rate(folder, kept); });
    } catch (const Error&) {
        s.measured_rate = 0;
    }
}

StoreUse use_of_disk() { return use_of(state().disk); }
StoreUse use_of_pinned_ram() { return use_of(state().pinned); }

}  // namespace nn
