// Recording what tasks do, while a profile is on.
#include "engine/profile.h"

#include <starpu.h>
#include <time.h>

#include <memory>
#include <unordered_map>
#include <utility>

#include "engine/error.h"
#include "engine/gpu.h"
#include "engine/profile_state.h"
#include "engine/runtime.h"

namespace nn {

std::atomic<bool> profile_on{false};

Profile& profile() {
    static auto* const instance = new Profile;  // tasks may outlive anything else
    return *instance;
}

namespace {

// A full profile ends at the moment when it did not keep something.
void note_full(Profile& p) {
    if (p.lost++ == 0) p.end = profile_now();
}

TaskRecord* new_record() {
    Profile& p = profile();
    if (p.count >= p.limit || p.lost > 0) {
        note_full(p);
        return nullptr;
    }
    if (size_t(p.count / Profile::chunk) == p.chunks.size())
        p.chunks.push_back(std::make_unique_for_overwrite<TaskRecord[]>(Profile::chunk));
    TaskRecord& r = p.record(p.count++);
    r = TaskRecord{};
    r.run = p.in_run ? p.runs : 0;
    r.index = p.in_run ? p.run_tasks++ : 0;
    r.first_access = p.accesses.size();
    r.worker = -1;
    p.stale = true;
    return &r;
}

void note_ready(void* record) { static_cast<TaskRecord*>(record)->ready = profile_now(); }
void note_popped(void* record) { static_cast<TaskRecord*>(record)->popped = profile_now(); }

void follow(TaskRecord* record, starpu_task* t) {
    t->prologue_callback_func = note_ready;
    t->prologue_callback_arg = record;
    t->prologue_callback_pop_func = note_popped;
    t->prologue_callback_pop_arg = record;
    record->submitted = profile_now();
}

int submissions = 0;  // spans of kind submit that exist

}  // namespace

double profile_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) * 1e6 + double(t.tv_nsec) * 1e-3;
}

void enable_profile(bool on, int64_t limit) {
    profile_on = false;
    Profile fresh;
    std::swap(profile(), fresh);
    if (!on) return;
    start();
    anchor_gpu_times();
    profile().limit = limit;
    profile().begin = profile_now();
    profile_on = true;
}

void stop_profile() {
    if (!profile_on) return;
    profile_on = false;
    if (profile().lost == 0) profile().end = profile_now();
    profile().stale = true;
}

const char* op_of(const TaskArg& arg) {
    return std::strcmp(arg.op, "task") == 0 ? arg.kernel->name.c_str() : arg.op;
}

void record_task(const Task& task, starpu_task* t) {
    TaskRecord* r = new_record();
    if (!r) return;
    const TaskArg& arg = task.arg;
    r->kernel = arg.kernel;
    r->op = op_of(arg);
    r->layer = arg.layer;
    r->flops = arg.flops;
    r->bytes = arg.bytes;
    r->dtype = arg.dtype;
    r->tile = arg.tile;
    r->rank = arg.rank;
    std::memcpy(r->extent, arg.extent, sizeof r->extent);
    r->accesses = uint8_t(task.handles);
    for (int i = 0; i < task.handles; ++i)
        profile().accesses.push_back(task.tiles[i]->number << 1 |
                                     uint64_t(task.modes[i] != Mode::read));
    follow(r, t);
}

void record_helper(starpu_task* t) {
    TaskRecord* r = new_record();
    if (!r) return;
    r->op = "help";
    r->layer = "";
    follow(r, t);
}

void withdraw_record(starpu_task* t) {
    if (!profiling() || !t->prologue_callback_arg) return;
    Profile& p = profile();
    p.accesses.resize(p.record(--p.count).first_access);
}

TaskRecord* current_record() {
    return static_cast<TaskRecord*>(starpu_task_get_current()->prologue_callback_arg);
}

KernelTimer::KernelTimer() : record_(profiling() ? current_record() : nullptr) {
    if (!record_) return;
    record_->worker = int16_t(starpu_worker_get_id());
    record_->start = record_->launched = profile_now();
}

void ProfileSpan::begin(Kind kind, const TaskArg* first) {
    on_ = kind == wait || submissions == 0;
    if (!on_) return;
    kind_ = kind;
    submissions += kind == submit;
    span_ = {kind == submit ? "submit" : "wait", first ? op_of(*first) : "", profile().count,
             profile_now(), 0};
}

void ProfileSpan::end() {
    submissions -= kind_ == submit;
    Profile& p = profile();
    if (!profiling()) return;
    span_.tasks = p.count - span_.tasks;
    span_.end = profile_now();
    if (int64_t(p.spans.size()) < p.limit)
        p.spans.push_back(span_);
    else
        note_full(p);
}

ProfileRun::ProfileRun() {
    Profile& p = profile();
    p.in_run = true;
    p.run_tasks = 0;
    ++p.runs;
}
ProfileRun::~ProfileRun() { profile().in_run = false; }

namespace {

int32_t layer_now = 0;
struct Layers {
    std::vector<const char*> names{""};
    std::unordered_map<std::string, int32_t> ids{{"", 0}};
};
Layers& layers() {
    static auto* const instance = new Layers;
    return *instance;
}

}  // namespace

int32_t layer_id(const std::string& name) {
    const auto [it, is_new] = layers().ids.try_emplace(name, int32_t(layers().names.size()));
    if (is_new)
        layers().names.push_back(it->first.c_str());  // nodes of the map stay where they are
    return it->second;
}
const char* current_layer() { return layers().names[size_t(layer_now)]; }
int32_t set_layer(int32_t id) {
    if (id < 0 || size_t(id) >= layers().names.size()) fail("there is no layer %d", id);
    return std::exchange(layer_now, id);
}

}  // namespace nn
