// Profiles: a record of every task, what is derived from the records, and that none are kept while
// profiling is off.
#include <cmath>

#include "engine/graph/context.h"
#include "engine/profile/links.h"
#include "engine/runtime/session.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// A session with a profile, for one test.
struct Profiled {
    explicit Profiled(int64_t limit = default_profile_limit) { start_profile(limit); }
    ~Profiled() {
        set_layer(0);
        wait_done();
        enable_profile(false);
    }
    ProfileTotals stop() {
        wait_done();
        stop_profile();
        return session_totals();
    }
};

double waited(const WorkerTimes& w) {
    return w.data + w.disk + w.dependencies + w.nothing + w.engine;
}

// Busy and idle time of each worker sum to the elapsed time.
void check_sums(const ProfileTotals& totals, size_t workers) {
    REQUIRE(totals.workers.size() == workers);
    for (const WorkerTimes& w : totals.workers) {
        INFO(w.name << ": busy " << w.busy << ", data " << w.data << ", disk " << w.disk
                    << ", dependencies " << w.dependencies << ", nothing " << w.nothing
                    << ", engine " << w.engine);
        CHECK(std::abs(w.busy + waited(w) - totals.seconds) < 1e-6);
        for (double time : {w.busy, w.data, w.disk, w.dependencies, w.nothing, w.engine})
            CHECK(time >= -1e-9);
    }
}

double sum(const ProfileTotals& totals, double WorkerTimes::*time) {
    double out = 0;
    for (const WorkerTimes& w : totals.workers) out += w.*time;
    return out;
}

std::vector<uint32_t> before(int64_t i) { return tasks_before(profile_dependencies(), i); }

}  // namespace

TEST_CASE("a profile records each task, with its times in order") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({6}, {2}));
    Profiled profile;
    set_layer(layer_id("blocks.1.mlp"));
    op("neg", {x});
    set_layer(0);
    emit_note(x.tile(1), 1);
    const ProfileTotals totals = profile.stop();
    CHECK(totals.tasks == 4);
    CHECK(totals.lost == 0);
    double last = nn::profile().begin;
    for (int i = 0; i < 4; ++i) {
        const TaskRecord& r = profile_task(i);
        INFO("task " << i);
        CHECK(std::string(r.name()) == (i < 3 ? "neg" : "test_note"));
        CHECK(std::string(r.op) == (i < 3 ? "neg" : "test_note"));
        CHECK(std::string(r.layer) == (i < 3 ? "blocks.1.mlp" : ""));
        CHECK(r.flops == (i < 3 ? 2 : 0));
        CHECK(r.bytes == (i < 3 ? 32 : 32));
        CHECK(r.run == 0);
        if (i < 3) CHECK(r.tile == i);
        if (i < 3) CHECK((r.rank == 1 && r.extent[0] == 2));
        CHECK(r.submitted >= last);
        CHECK(r.ready >= r.submitted);
        CHECK(r.popped >= r.ready);
        CHECK(r.launched >= r.popped);
        CHECK(r.start == r.launched);
        CHECK(r.end >= r.start);
        CHECK((r.worker == 0 || r.worker == 1));
        last = r.submitted;
    }
    check_sums(totals, 2);
}

TEST_CASE("nothing is recorded without a profile, or after its end") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({4}, {1}));
    op("neg", {x});
    wait_all();
    CHECK(nn::profile().count == 0);
    CHECK(nn::profile().spans.empty());
    Profiled profile;
    op("neg", {x});
    profile.stop();
    op("neg", {x});
    wait_all();
    CHECK(nn::profile().count == 4);
    enable_profile(false);
    CHECK(nn::profile().count == 0);
    CHECK(profile_groups(GroupBy::kernel).empty());
}

TEST_CASE("a profile records thousands of tasks, each once", "[sweep]") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({1}, {1}));
    Profiled profile;
    Notes::take();
    for (int i = 0; i < 5000; ++i) emit_note(x.tile(0), i);
    const ProfileTotals totals = profile.stop();
    REQUIRE(totals.tasks == 5000);
    CHECK(Notes::take().size() == 5000);
    int64_t wrong = 0;
    for (int64_t i = 1; i < 5000; ++i) {
        if (before(i) != std::vector<uint32_t>{uint32_t(i - 1)}) ++wrong;
        if (profile_task(i).start < profile_task(i - 1).end) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(kernel_stat(find_kernel("test_note")).calls == 5000);
    check_sums(totals, 2);
}

TEST_CASE("a full profile counts the tasks it drops, and its time ends there") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({1}, {1}));
    Profiled profile(10);
    Notes::take();
    for (int i = 0; i < 25; ++i) emit_note(x.tile(0), i);
    wait_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const double now = now_us();
    const ProfileTotals totals = profile.stop();
    CHECK(totals.tasks == 10);
    CHECK(totals.lost >= 15);
    CHECK(Notes::take().size() == 25);
    CHECK(totals.seconds * 1e6 <= now - nn::profile().begin - 30e3);
    check_sums(totals, 2);
}

TEST_CASE("a task depends on the last writer of what it uses and on readers of what it writes") {
    const Session session;
    const Tensor a = scalar_of(1), b = scalar_of(2), c = scalar_of(3);
    const auto mix = [](const Tensor& y, const Tensor& x) {
        task("test_mix", Dtype::i64)
            .use({updates(y.tile(0)), reads(x.tile(0))})
            .params(mix_params{1})
            .emit();
    };
    Profiled profile;
    mix(a, b);  // 0
    mix(c, b);  // 1: reads b as 0 does
    mix(b, a);  // 2: reads what 0 wrote, writes what 0 and 1 read
    mix(c, a);  // 3: changes what 1 wrote, reads a as 2 does
    mix(a, c);  // 4: reads what 3 wrote, writes what 0 wrote and 2 and 3 read
    profile.stop();
    CHECK(before(0).empty());
    CHECK(before(1).empty());
    CHECK(before(2) == std::vector<uint32_t>{0, 1});
    CHECK(before(3) == std::vector<uint32_t>{0, 1});
    CHECK(before(4) == std::vector<uint32_t>{0, 2, 3});
    for (int64_t i = 0; i < 5; ++i)
        for (uint32_t k : before(i)) CHECK(profile_task(k).end <= profile_task(i).start);
    CHECK_THROWS_WITH(profile_task(5), "profile task 5 is outside [0, 5)");
    CHECK_THROWS_WITH(profile_task(-1), "profile task -1 is outside [0, 5)");
}

TEST_CASE("a worker that waits for another worker's task waits for dependencies") {
    const Session session;
    const Tensor x = scalar_of(0);
    Profiled profile;
    Gate gate;
    emit_gate(x.tile(0));
    emit_note(x.tile(0), 1);
    REQUIRE(Gate::reached());
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    Gate::open();
    Notes::take();
    const ProfileTotals totals = profile.stop();
    CHECK(sum(totals, &WorkerTimes::dependencies) > 0.039);
    CHECK(sum(totals, &WorkerTimes::busy) > 0.039);
    CHECK(sum(totals, &WorkerTimes::data) == 0);
    check_sums(totals, 2);
}

TEST_CASE("a worker without a ready task waits for the disk while a transfer waits or runs") {
    const Session session;
    const Tensor x = scalar_of(0);
    Profiled profile;
    Gate gate;
    emit_gate(x.tile(0));
    emit_note(x.tile(0), 1);
    REQUIRE(Gate::reached());
    const double queued = now_us();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    transfer_log().add({true, true, 0, 4096, queued, queued + 10'000, now_us()});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Gate::open();
    Notes::take();
    const ProfileTotals totals = profile.stop();
    const TransferRecord& r = nn::profile().transfers.at(0);
    CHECK(std::abs(sum(totals, &WorkerTimes::disk) - (r.end - r.queued) * 1e-6) < 1e-9);
    CHECK(sum(totals, &WorkerTimes::dependencies) > 0.019);
    check_sums(totals, 2);
}

TEST_CASE("sums over transfers count time with several of them once, by direction") {
    const Session session;
    Profiled profile;
    const double t = now_us();
    transfer_log().add({true, false, 1, 100, t, t + 10, t + 30});
    transfer_log().add({true, false, 1, 200, t, t + 20, t + 40});
    transfer_log().add({true, true, 1, 400, t, t + 25, t + 35});
    transfer_log().add({true, false, 1, 800, t + 50, t + 50, t + 60});
    transfer_log().add({false, false, 1, 1600, t, t, t + 60});  // another link
    profile.stop();
    const LinkTimes in = link_times(true, false), out = link_times(true, true);
    CHECK((in.transfers == 3 && in.bytes == 1100));
    CHECK((out.transfers == 1 && out.bytes == 400));
    CHECK(std::abs(in.busy - 40e-6) < 1e-9);
    CHECK(std::abs(in.waited - 30e-6) < 1e-9);
    CHECK(std::abs(out.busy - 10e-6) < 1e-9);
}

TEST_CASE("a profile ends at the first transfer beyond its limit") {
    const Session session;
    Profiled profile(2);
    const double t = now_us();
    for (int i = 0; i < 3; ++i) transfer_log().add({true, false, 0, 1, t + i, t + i, t + i + 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the last transfer ends
    profile.stop();
    CHECK(nn::profile().transfers.size() == 2);
    CHECK(nn::profile().end == t + 2);
    transfer_log().add({true, false, 0, 1, t, t, t});  // no profile is under way
    CHECK(nn::profile().transfers.size() == 2);
}

TEST_CASE("workers without submitted tasks wait for submission") {
    const Session session;
    const Tensor x = scalar_of(0);
    Profiled profile;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Gate gate;
    emit_gate(x.tile(0));
    REQUIRE(Gate::reached());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Gate::open();
    const ProfileTotals totals = profile.stop();
    CHECK(sum(totals, &WorkerTimes::nothing) > 2 * 0.03 + 0.02 - 0.002);
    CHECK(sum(totals, &WorkerTimes::dependencies) < 0.001);
    check_sums(totals, 2);
}

TEST_CASE("tasks of a program record their run and their index in it") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({2}, {1}));
    const auto program = compile({x}, [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{op("neg", {op("neg", {in[0]})})};
    });
    Profiled profile;
    program->run({x});
    program->run({x});
    profile.stop();
    Integers runs;
    for (int64_t i = 0; i < nn::profile().count; ++i) {
        const TaskRecord& r = profile_task(i);
        if (std::string(r.op) != "neg") CHECK((std::string(r.op) == "copy" && r.run == 0));
        if (std::string(r.op) == "neg") runs.push_back(r.run * 10 + r.index);
    }
    CHECK(runs == Integers{10, 11, 12, 13, 20, 21, 22, 23});
    int64_t submitted = 0;
    for (const SpanRecord& s : nn::profile().spans)
        if (std::string(s.what) == "submit") submitted += s.tasks;
    CHECK(submitted == nn::profile().count);
}

TEST_CASE("groups sum tasks by kernel, op and layer") {
    const Session session;
    const Tensor x = numbered_tensor(grid_of({3}, {1}));
    Profiled profile;
    op("neg", {x});
    set_layer(layer_id("a"));
    op("neg", {x});
    op("add", {x, x});
    profile.stop();
    for (GroupBy by : {GroupBy::kernel, GroupBy::op, GroupBy::layer}) {
        std::map<std::string, int64_t> calls;
        double last = 1e9;
        for (const ProfileGroup& g : profile_groups(by)) {
            calls[g.name] += g.stat.calls;
            CHECK(g.stat.seconds <= last);
            last = g.stat.seconds;
        }
        const std::map<std::string, int64_t> expected =
            by == GroupBy::layer ? std::map<std::string, int64_t>{{"", 3}, {"a", 6}}
                                 : std::map<std::string, int64_t>{{"neg", 6}, {"add", 3}};
        CHECK(calls == expected);
    }
}

TEST_CASE("tasks that did not run after a failed one are in no group") {
    const Session session;
    inject_failure("neg:1");
    const Tensor x = scalar_of(1);
    Profiled profile;
    op("add", {op("neg", {x}), x});
    const ProfileTotals totals = profile.stop();
    CHECK(contains("failed by NNLUA_FAIL_KERNEL").match(error_of(wait_all)));
    inject_failure("");
    CHECK(kernel_stat(find_kernel("neg")).calls == 1);
    CHECK(kernel_stat(find_kernel("add")).calls == 0);
    check_sums(totals, 2);
}

TEST_CASE("a layer keeps its number, and unknown numbers are refused") {
    const int32_t a = layer_id("tests.layer");
    CHECK(layer_id("tests.layer") == a);
    CHECK(layer_id("tests.other") != a);
    CHECK(layer_id("") == 0);
    CHECK(set_layer(a) == 0);
    CHECK(std::string(current_layer()) == "tests.layer");
    CHECK_THROWS_WITH(set_layer(1 << 30), contains("layer 1073741824 is outside [0, "));
    CHECK_THROWS_WITH(set_layer(-1), contains("layer -1 is outside [0, "));
    CHECK(set_layer(0) == a);
    CHECK(std::string(current_layer()).empty());
}

TEST_CASE("a shutdown ends the profile, and the next session has its own") {
    {
        const Session session;
        enable_profile(true);
        emit_note(scalar_of(1).tile(0), 1);
        Notes::take();
        CHECK(nn::profile().count > 0);
    }
    CHECK(!profiling());
    CHECK(nn::profile().count == 0);
    const Session session(1);
    Profiled profile;
    op("neg", {scalar_of(1)});
    check_sums(profile.stop(), 1);
}

}  // namespace nn::engine_test
