#include "engine/graph/recording.h"

#include "engine/base/error.h"
#include "engine/graph/passes/passes.h"
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
        program->tasks.push_back(std::move(task));
    }
    uint64_t next_random() override { return program->randoms++; }
    void add_to_scalar(int32_t scalar, double delta) override {
        program->hold(scalar);
        program->scalar_steps.push_back({program->tasks.size(), scalar, delta});
    }

    const std::shared_ptr<Program> program;
    int open_backwards = 0, shard = -1;
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

std::shared_ptr<Program> end_recording(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                                       const std::function<void(Program&)>& choose) {
    under_way();
    std::shared_ptr<Program> program = stop();
    program->inputs = std::move(inputs);
    program->outputs = std::move(outputs);
    run_passes(*program, choose);
    return program;
}

void abort_recording() { stop(); }
Program* recording_program() { return recorder ? recorder->program.get() : nullptr; }
void begin_step() { under_way().step_begin = under_way().tasks.size(); }
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
