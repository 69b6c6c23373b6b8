#include "engine/graph/recording.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/graph/same_tasks.h"
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
    std::vector<RecordedTasks> bodies;  // of the loop under way
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

// The loop under way.
Program::Loop& loop_of(Recorder& r) {
    if (!r.in_loop) fail("compile: no loop is under way");
    return r.program->loops.back();
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
    if (iteration < 0 || iteration >= int(loop_of(r).iterations) || !r.bodies.empty())
        fail("compile: iteration %d of a loop that does not have it", iteration);
    r.iteration = iteration;
}
void begin_body() {
    Recorder& r = current();
    const size_t tasks = r.program->tasks.size();
    if (loop_of(r).iterations < 2 || r.bodies.size() > 1) fail("compile: a body too many");
    if (!r.bodies.empty()) r.bodies.back().end = tasks;
    r.bodies.push_back({tasks, tasks, tiles_created(), r.program->randoms});
    r.iteration = -1;
}

namespace {

// Rearranges the program: keeps these tasks, which are numbers of those before, in this order.
// Marks of tasks that are left out are, too.
void keep_tasks(Program& program, const std::vector<size_t>& kept) {
    constexpr size_t none = SIZE_MAX;
    std::vector<size_t> place(program.tasks.size() + 1, none);
    std::vector<Task> tasks;
    for (size_t t : kept) {
        place[t] = tasks.size();
        tasks.push_back(std::move(program.tasks[t]));
    }
    place.back() = tasks.size();
    // Where a stretch ends before a task that is left out, it ends before the next one that is
    // kept.
    const auto end_of = [&](size_t end) {
        while (place[end] == none) ++end;
        return place[end];
    };
    std::erase_if(program.microbatches,
                  [&](const auto& mark) { return place[mark.begin] == none; });
    for (auto& mark : program.microbatches) mark.begin = place[mark.begin];
    std::erase_if(program.backwards, [&](const auto& mark) { return place[mark.begin] == none; });
    for (auto& mark : program.backwards) mark = {place[mark.begin], end_of(mark.end)};
    program.tasks = std::move(tasks);
}

void append(std::vector<size_t>& list, size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) list.push_back(t);
}

}  // namespace

// Of two bodies that do the same the second one stays, because Lua has its tensors.
int end_loop(bool repeats) {
    Recorder& r = current();
    Program& program = *r.program;
    Program::Loop loop = loop_of(r);
    if (r.bodies.size() != 2) fail("compile: a loop without two bodies");
    r.bodies[1].end = program.tasks.size();
    const RecordedTasks first = r.bodies[0], second = r.bodies[1];
    r.in_loop = false, r.iteration = -1, r.bodies.clear();
    std::vector<size_t> kept;
    append(kept, 0, loop.begin);
    if (repeats && same_tasks(program.tasks, first, second)) {
        loop.randoms = second.randoms - first.randoms;
        for (size_t t = first.begin; t < first.end; ++t)
            for (int i = 0; i < program.tasks[t].handles; ++i) {
                Tile& tile = *program.tasks[t].tiles[i];
                if (tile.number > first.tiles && tile.number <= second.tiles) tile.recorded = false;
            }
        for (size_t t = second.begin; t < second.end; ++t)
            shift_random_keys(program.tasks[t], &program.tasks[t].arg, 0 - loop.randoms);
        append(kept, loop.begin, first.begin);
        append(kept, second.begin, second.end);
        keep_tasks(program, kept);
        loop.end = program.tasks.size();
        program.loops.back() = loop;
        program.randoms = first.randoms + loop.randoms * loop.iterations;
        return int(loop.iterations);
    }
    for (int iteration = 0; iteration < 2; ++iteration) {
        for (size_t t = loop.begin; t < first.begin; ++t)
            if (program.tasks[t].iteration == iteration) {
                program.tasks[t].iteration = -1;
                kept.push_back(t);
            }
        const RecordedTasks& body = iteration == 0 ? first : second;
        append(kept, body.begin, body.end);
    }
    keep_tasks(program, kept);
    program.loops.pop_back();
    return 2;
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
