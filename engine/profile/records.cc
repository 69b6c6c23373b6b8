#include "engine/profile/records.h"

#include <starpu.h>

#include <algorithm>
#include <utility>

#include "engine/graph/product_ways.h"
#include "engine/graph/task.h"

namespace nn {

std::atomic<bool> profile_on{false};

Profile& profile() {
    static auto* const instance = new Profile;  // tasks may outlive anything else
    return *instance;
}

namespace {

// A full profile ends when it drops its first record.
void note_full(Profile& p) {
    if (p.lost++ == 0) p.end = now_us();
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
    return &r;
}

void note_ready(void* record) { static_cast<TaskRecord*>(record)->ready = now_us(); }
void note_popped(void* record) { static_cast<TaskRecord*>(record)->popped = now_us(); }

void follow(TaskRecord* record, starpu_task* t) {
    t->prologue_callback_func = note_ready, t->prologue_callback_pop_func = note_popped;
    t->prologue_callback_arg = t->prologue_callback_pop_arg = record;
    record->submitted = now_us();
}

int submissions = 0;  // spans of kind submit that exist

}  // namespace

void enable_profile(bool on, int64_t limit) {
    profile_on = false;
    Profile fresh;
    std::swap(profile(), fresh);
    double cut;
    if (!on) return (void)transfer_log().end(&cut);
    transfer_log().begin(size_t(limit));
    profile().limit = limit;
    profile().begin = now_us();
    profile_on = true;
}

void stop_profile() {
    if (!profile_on) return;
    profile_on = false;
    Profile& p = profile();
    if (p.lost == 0) p.end = now_us();
    double cut;
    p.transfers = transfer_log().end(&cut);
    if (cut > 0) p.end = std::min(p.end, cut);
}

void record_task(const Task& task, starpu_task* t) {
    TaskRecord* r = new_record();
    if (!r) return;
    const TaskArg& arg = *static_cast<const TaskArg*>(t->cl_arg);
    r->kernel = arg.kernel, r->op = name_of(arg), r->layer = arg.layer;
    r->library = chosen_library(arg);
    r->flops = arg.flops, r->bytes = arg.bytes;
    r->dtype = arg.dtype, r->tile = arg.tile, r->rank = arg.rank;
    std::memcpy(r->extent, arg.extent, sizeof r->extent);
    r->accesses = uint8_t(task.handles);
    for (int i = 0; i < task.handles; ++i)
        profile().accesses.push_back(task.tiles[i]->number << 1 | uint64_t(task.writes(i)));
    follow(r, t);
}

void record_team_member(starpu_task* t) {
    TaskRecord* r = new_record();
    if (!r) return;
    r->op = "team";
    r->layer = r->library = "";
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

KernelTimer::KernelTimer(bool on) : record_(on && profiling() ? current_record() : nullptr) {
    if (!record_) return;
    record_->worker = int16_t(starpu_worker_get_id());
    record_->start = record_->launched = now_us();
}

void ProfileSpan::begin(Kind kind, const TaskArg* first) {
    on_ = kind == wait || submissions == 0;
    if (!on_) return;
    kind_ = kind;
    submissions += kind == submit;
    span_ = {kind == submit ? "submit" : "wait", first ? name_of(*first) : "", profile().count,
             now_us(), 0};
}

void ProfileSpan::end() {
    submissions -= kind_ == submit;
    Profile& p = profile();
    if (!profiling()) return;
    span_.tasks = p.count - span_.tasks;
    span_.end = now_us();
    if (int64_t(p.spans.size()) < p.limit)
        p.spans.push_back(span_);
    else
        note_full(p);
}

}  // namespace nn
