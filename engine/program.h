// A program: the tasks of a function, recorded once and replayed without Lua. Because the whole of
// it is known before it runs, the engine can say when each temporary is last used (and give its
// memory back there), how many bytes it will take, and which tasks are on the critical path.
#pragma once
#include <memory>
#include <vector>

#include "engine/task.h"
#include "engine/tensor.h"

namespace nn {

struct ProgramInfo {
    int64_t tasks, tiles;
    double flops;
    int64_t persistent_bytes;  // of tiles that exist before and after
    int64_t peak_bytes;        // largest sum of live temporaries, in submission order
};

class Program {
public:
    explicit Program(uint32_t number) : number_(number) {}
    Program(const Program&) = delete;
    ~Program();
    void add(Task&& task);
    void add_to_slot(int32_t slot, double delta);
    uint64_t next_random() { return randoms_++; }

    // Ends the recording: drops tasks whose results nobody uses, computes lifetimes and priorities.
    void finish(std::vector<Tensor> inputs, std::vector<Tensor> outputs);
    // Copies the inputs in, submits every task, and returns copies of the outputs. Does not wait,
    // except to keep at most one earlier replay in flight.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs);
    ProgramInfo info() const { return info_; }
    // While recording: what came before makes what a step works on (weights, moments). A plan is
    // about the tasks from here on.
    void begin_step() { step_begin_ = tasks_.size(); }
    // While recording: the next part of a step that works on one part of its batch after the other
    // begins; `tiles`: into how many tiles its tokens are cut. See engine/parts.cc.
    void begin_part(int tiles) { parts_.push_back({tasks_.size(), tiles}); }
    bool helped() const { return helped_; }  // whether workers help each other with single tasks
    size_t step_begin() const { return step_begin_; }
    const std::vector<Task>& tasks() const { return tasks_; }
    const std::vector<Tensor>& inputs() const { return inputs_; }
    const std::vector<Tensor>& results() const { return outputs_; }
    size_t outputs() const { return outputs_.size(); }

private:
    struct SlotStep {
        size_t before_task;
        int32_t slot;
        double delta;
    };
    struct Part {
        size_t begin;
        int tiles;
    };
    void check_ends() const;
    void check_inputs_kept() const;
    void drop_unused();
    void check_values() const;
    void find_lifetimes();
    void order_parts();
    void find_priorities();
    void set_priorities(const std::vector<double>& path);
    void find_help();
    void check_run(const std::vector<Tensor>& inputs) const;
    void hold_slot(int32_t slot);
    void submit_tasks();

    const uint32_t number_;  // of the recording: its temporaries have it
    bool submitted_ = false;
    size_t step_begin_ = 0;
    std::vector<Part> parts_;
    bool helped_ = false;
    std::vector<Task> tasks_;
    std::vector<std::vector<TilePtr>> dies_after_;  // per task: temporaries whose last use it is
    std::vector<TilePtr>
        die_at_end_;  // temporaries that the outputs are copied from, inputs nobody uses
    std::vector<TilePtr> read_first_;  // persistent tiles that must have a value before a run
    std::vector<SlotStep> slot_steps_;
    std::vector<int32_t> held_slots_;
    std::vector<Tensor> inputs_, outputs_;
    uint64_t randoms_ = 0;
    ProgramInfo info_{};
};

// Recording. Only one at a time: a compiled function called while another records is recorded into
// it.
void begin_recording();
std::shared_ptr<Program> end_recording();
void abort_recording();
uint32_t recording_number();   // 0 when not recording
Program* recording_program();  // null when not recording

// The op being applied, for error messages; "task" outside of any. in_place: it changes an input.
const char* current_op();
bool current_op_in_place();
void set_current_op(const char* op = "task", bool in_place = false);

}  // namespace nn
