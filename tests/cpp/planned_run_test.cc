// Runs of a program whose tiles are in slots and on a disk: what is in slots when a run begins is
// what its plan reserves them for, else the run is refused.
#include "engine/executor/planned.h"
#include "engine/residency/homes.h"
#include "tests/cpp/disk_test.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// Tiers for one test; they end after its session.
struct Tiers {
    Tiers(int64_t ram, const std::string& folder) {
        set_tiers({{{NodeKind::ram, ram}}, {folder}, 0, true});
    }
    Tiers(const Tiers&) = delete;
    ~Tiers() { set_tiers({}); }
};

// Adds each tensor to the next one, in place.
std::shared_ptr<Program> chain_of(const std::vector<Tensor>& tensors) {
    begin_recording();
    for (size_t i = 1; i < tensors.size(); ++i) op("add_", {tensors[i], tensors[i - 1]});
    auto program = end_recording({}, {});
    prepare(*program);
    return program;
}

void submit(PlannedRun& run) {
    std::vector<TaskArg*> arguments;
    for (Task& task : run.tasks().tasks) arguments.push_back(&task.arg);
    run.submit(arguments);
}

}  // namespace

TEST_CASE("a run is refused if a slot holds a tile for which it is not reserved") {
    const Folder folder;
    const Tiers tiers(2 << 20, folder.path);
    const Session session(1);
    std::vector<Tensor> tensors;
    for (int i = 0; i < 30; ++i) tensors.push_back(filled(Grid::whole({1 << 15}), Dtype::f32, 1));
    const auto program = chain_of(tensors);
    PlannedRun run(*program);
    run.prepare();
    submit(run);
    run.prepare();
    std::vector<HomeOf> in_slots, on_disk;
    for (const HomeOf& home : homes()) (home.at == in_store ? on_disk : in_slots).push_back(home);
    REQUIRE(!in_slots.empty());
    REQUIRE(!on_disk.empty());
    Tile &from = *in_slots[0].tile, &to = *on_disk[0].tile;
    for (const auto& [tile, place] : {std::pair(&from, in_store), std::pair(&to, in_slots[0].at)}) {
        const TilePlace before = home_of_tile(*tile);
        move_home(*tile, place);
        CHECK_THAT(error_of([&] { submit(run); }),
                   contains(name_of(*tile).text + " is not in the place that is reserved for it "
                                                  "before a run of program"));
        move_home(*tile, before);
    }
    submit(run);
    std::vector<float> expected(tensors.size(), 1), found(1 << 15);
    for (int twice = 0; twice < 2; ++twice)
        for (size_t i = 1; i < expected.size(); ++i) expected[i] += expected[i - 1];
    for (size_t i = 0; i < tensors.size(); ++i) {
        read_tensor(tensors[i], found.data());
        CHECK(found == std::vector<float>(found.size(), expected[i]));
    }
}

}  // namespace nn::engine_test
