#include "engine/graph/recording.h"

#include "engine/base/error.h"
#include "engine/graph/sink.h"

namespace nn {
namespace {

class Recorder : public Sink {
public:
    explicit Recorder(uint32_t number) : program(std::make_shared<Program>(number)) {}

    void emit(Task&& task) override {
        for (const Patch& patch : task.patches)
            if (patch.kind == Patch::scalar) program->hold(patch.scalar_id);
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i)) task.tiles[i]->recorded = true;
        task.shard = shard;
        task.iteration = iteration;
        program->tasks.push_back(std::move(task));
    }
    uint64_t next_random() override { return program->randoms++; }
    void add_to_scalar(int32_t scalar, double delta) override {
        if (in_loop)
            fail(
                "compile: an nn.scalar changes inside a microbatch of nn.accumulate, whose tasks "
                "are recorded once for all microbatches; change it before or after them");
        program->hold(scalar);
        program->scalar_steps.push_back({program->tasks.size(), scalar, delta});
    }

    const std::shared_ptr<Program> program;
    int open_backwards = 0, shard = -1;
    bool in_loop = false;
    int32_t iteration = -1;
};

std::unique_ptr<Recorder> recorder;
Sink* outer = nullptr;  // the sink before the recording
uint32_t recordings = 0;

std::shared_ptr<Program> stop() {
    if (!recorder) return nullptr;
    use_sink(outer);
    set_recording_number(0);
    const std::unique_ptr<Recorder> ended = std::move(recorder);
    return ended->program;
}

Recorder& current() {
    if (!recorder) fail("compile: no recording is under way");
    return *recorder;
}
Program& under_way() { return *current().program; }

}  // namespace

void begin_recording() {
    if (recorder) fail("compile: another recording is under way");
    recorder = std::make_unique<Recorder>(++recordings);
    set_recording_number(recordings);
    outer = use_sink(recorder.get());
}

std::shared_ptr<Program> end_recording(std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
    under_way();
    std::shared_ptr<Program> program = stop();
    program->inputs = std::move(inputs);
    program->outputs = std::move(outputs);
    return program;
}

void abort_recording() { stop(); }
Program* recording_program() { return recorder ? recorder->program.get() : nullptr; }
void begin_planned_step(std::vector<Tensor> lasting) {
    Program& program = under_way();
    if (current().in_loop || current().open_backwards > 0)
        fail("compile: a step begins inside a loop or a backward pass");
    const std::vector<TilePtr> tiles = tiles_of(lasting);
    for (const TilePtr& tile : tiles)
        if (tile->recording && tile->recording != program.number)
            fail("compile: a tensor that lasts belongs to another compiled function");
    const auto make_last = [&](Tile& tile) { tile.is_planned = tile.recording == program.number; };
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i) make_last(*task.tiles[i]);
    for (const TilePtr& tile : tiles) make_last(*tile);
    program.is_plan = true, program.lasting = std::move(lasting);
    program.tasks.clear(), program.loops.clear(), program.microbatches.clear();
    program.backwards.clear(), program.scalar_steps.clear();
}
void begin_microbatch(int tiles) {
    under_way().microbatches.push_back({under_way().tasks.size(), tiles});
}
void set_shard(int shard, int shards) {
    Program& program = under_way();
    if (shards < 1 || shard < -1 || shard >= shards) fail("compile: shard %d of %d", shard, shards);
    if (program.shards > 0 && program.shards != shards)
        fail("compile: a batch of %d shards after one of %d", shards, program.shards);
    program.shards = shards;
    current().shard = shard;
}
void begin_loop(int iterations) {
    Recorder& r = current();
    if (r.in_loop) fail("compile: a loop inside of another one");
    if (iterations < 1) fail("compile: a loop of %d iterations", iterations);
    const size_t tasks = r.program->tasks.size();
    r.program->loops.push_back({tasks, tasks, uint32_t(iterations), r.program->randoms});
    r.in_loop = true;
}
void set_iteration(int iteration) {
    Recorder& r = current();
    if (!r.in_loop || iteration < -1 || iteration >= int(r.program->loops.back().iterations))
        fail("compile: iteration %d of a loop that does not have it", iteration);
    r.iteration = iteration;
}
void end_loop() {
    Recorder& r = current();
    if (!r.in_loop) fail("compile: no loop is under way");
    Program::Loop& loop = r.program->loops.back();
    loop.end = r.program->tasks.size();
    loop.randoms = r.program->randoms - loop.randoms;
    r.program->randoms += loop.randoms * (loop.iterations - 1);
    r.in_loop = false, r.iteration = -1;
}
void begin_backward() {
    const size_t tasks = under_way().tasks.size();
    if (current().open_backwards++ == 0) under_way().backwards.push_back({tasks, tasks});
}
void end_backward() {
    if (current().open_backwards == 0) fail("compile: no backward pass is under way");
    if (--current().open_backwards == 0)
        under_way().backwards.back().end = under_way().tasks.size();
}

}  // namespace nn
