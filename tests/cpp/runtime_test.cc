// The session: its start, the choice of devices, its end while tensors and programs live, Ctrl-C,
// scalars, the random counter, statistics.
#include <starpu.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "engine/graph/cost.h"
#include "engine/runtime/session.h"
#include "engine/workers/handles.h"
#include "engine/workers/rates.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

std::atomic<bool> handled{false};
void note_signal(int) { handled = true; }

std::string scheduler_in_use() { return starpu_sched_get_sched_policy()->policy_name; }

// A program in flight with its input and result, for a shutdown.
struct Work {
    Tensor x = scalar_of(1), y;
    std::shared_ptr<Replay> program = compile({x}, [this](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{op("add", {in[0], x})};
    });
    Work() { y = program->run({x})[0]; }
};

}  // namespace

TEST_CASE("StarPU starts at the first task, with the requested number of workers") {
    for (int cpus : {1, 2}) {
        const Session session(cpus);
        CHECK_FALSE(running());
        const Tensor x(Grid::whole({1000}), Dtype::f32);
        CHECK_FALSE(running());
        fill(x, 1);
        CHECK(running());
        CHECK(cpu_workers() == std::min(cpus, int(std::thread::hardware_concurrency())));
    }
}

TEST_CASE("devices can be chosen before the first task, and again after a shutdown") {
    const Session session(1);
    const Tensor x = scalar_of(1);
    CHECK_THAT(error_of([] { configure({{2}, ""}); }), contains("before the first tensor"));
    CHECK(cpu_workers() == 1);
    CHECK(values_of(x)[0] == 1);
    shutdown();
    configure({{1}, "eager"});
    CHECK(values_of(scalar_of(2))[0] == 2);
    CHECK(scheduler_in_use() == "eager");
}

TEST_CASE("the start refuses more GPUs than the machine has, and zero GPUs are always valid") {
    {
        const Session session(1);
        configure({{1, 1000}, ""});
        CHECK_THAT(error_of([] { start(); }), contains("asks for 1000 GPUs"));
        CHECK_FALSE(running());
        configure({{1, 0, int64_t(1) << 30}, "", 2});
        CHECK(values_of(scalar_of(2))[0] == 2);
        CHECK(gpus() == 0);
        CHECK(std::string(getenv("STARPU_LIMIT_CUDA_MEM")) == "1024");
        CHECK(std::string(getenv("STARPU_NWORKER_PER_CUDA")) == "2");
    }
    const Session session(1);
    CHECK(values_of(scalar_of(2))[0] == 2);
    CHECK(getenv("STARPU_LIMIT_CUDA_MEM") == nullptr);
    CHECK(getenv("STARPU_NWORKER_PER_CUDA") == nullptr);
}

TEST_CASE("schedulers that need task times get them from FLOPs, bytes and measured rates") {
    {
        const Session session(1);
        start();
        CHECK(perf_model() == nullptr);
        CHECK(rates_of(0).f32 == 0);
    }
    const Session session(1, "dmdas");
    start();
    const Rates r = rates_of(0);
    for (double rate : {r.f32, r.f64, r.bf16, r.tf32, r.bytes}) CHECK(rate > 1e6);
    TaskArg arg{};
    arg.kernel = find_kernel("add");
    arg.dtype = Dtype::f32, arg.flops = 1, arg.bytes = 1e9f;
    CHECK(seconds_of(arg, r) == Approx(r.start + 1e9 / r.bytes));
    arg.kernel = find_kernel("gemm");
    arg.flops = 1e15f, arg.dtype = Dtype::bf16;
    CHECK(seconds_of(arg, r) == Approx(r.start + double(1e15f) / r.bf16));
    // StarPU gets the same time.
    starpu_codelet codelet;
    starpu_codelet_init(&codelet);
    codelet.cpu_funcs[0] = [](void**, void*) {};
    codelet.model = perf_model();
    starpu_task* task = starpu_task_create();
    task->cl = &codelet, task->cl_arg = &arg, task->cl_arg_size = sizeof arg;
    CHECK(starpu_task_worker_expected_length(task, 0, 0, 0) == Approx(seconds_of(arg, r) * 1e6));
    // A group takes the time of all its tasks.
    const TaskArg* const args[] = {&arg, &arg, &arg};
    GroupArg group{arg, 3, args};
    codelet.model = perf_model_of_groups();
    task->cl_arg = &group;
    CHECK(starpu_task_worker_expected_length(task, 0, 0, 0) ==
          Approx(3 * seconds_of(arg, r) * 1e6));
    task->destroy = 0;
    starpu_task_destroy(task);
}

TEST_CASE("waiting for tasks that cannot begin is an error, until they can") {
    setenv("NNLUA_WATCHDOG", "0.3", 1);
    {
        const Session session(1);
        // Busy cores may leave no time to a worker for so long.
        const auto wait_at_length = [] {
            for (int i = 0; i < 20 && !error_of([] { wait_all(); }).empty(); ++i) continue;
        };
        const Tensor x = scalar_of(1);
        wait_at_length();
        const starpu_data_handle_t handle = handle_of(*x.tile(0));
        REQUIRE(starpu_data_acquire(handle, STARPU_RW) == 0);
        const Tensor y = op("add", {x, x});
        CHECK_THAT(error_of([] { wait_all(); }),
                   contains("no progress for 0.3 s: none of 1 submitted tasks is running"));
        starpu_data_release(handle);
        wait_at_length();
        CHECK(values_of(y)[0] == 2);
    }
    unsetenv("NNLUA_WATCHDOG");
}

TEST_CASE("the scheduler can be chosen by name") {
    unsetenv("STARPU_SCHED");
    for (const char* name : {"eager", "prio", "dmdas"}) {
        const Session session(1, name);
        CHECK(values_of(scalar_of(1))[0] == 1);
        CHECK(scheduler_in_use() == name);
    }
}

TEST_CASE("an unknown scheduler is refused with the known ones, and the earlier choice remains") {
    const Session session(1, "eager");
    const std::string error = error_of([] { configure({{1}, "eagre"}); });
    CHECK_THAT(error, contains("'eagre'") && contains("eager") && contains("dmdas"));
    CHECK(values_of(scalar_of(1))[0] == 1);
    CHECK(scheduler_in_use() == "eager");
    shutdown();
    setenv("STARPU_SCHED", "eagre", 1);
    CHECK_THAT(error_of([] { start(); }), contains("'eagre'"));
    unsetenv("STARPU_SCHED");
    CHECK(values_of(scalar_of(1))[0] == 1);
}

TEST_CASE("start, idle and shutdown may be repeated, and a task wakes idle workers") {
    const Session session;
    shutdown();
    start(), start();
    idle(), idle();
    const Tensor x = scalar_of(3);
    CHECK(values_of(x)[0] == 3);
    idle();
    CHECK(values_of(op("neg", {x}))[0] == -3);
    idle();
    shutdown(), shutdown();
    CHECK_FALSE(running());
    idle();
    CHECK_FALSE(running());
}

TEST_CASE("shutdown waits for submitted tasks") {
    const Session session;
    const Tensor x = scalar_of(1);
    const Gate closed;
    emit_gate(x.tile(0));
    emit_note(x.tile(0), 1);
    REQUIRE(Gate::reached());
    std::thread opener([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        Gate::open();
    });
    shutdown();
    CHECK_FALSE(Gate::closed);
    opener.join();
    CHECK(Notes::take() == std::vector<double>{1});
}

TEST_CASE("a shutdown removes the values of tensors, not the tensors") {
    const Session session;
    const Tensor x = scalar_of(1);
    shutdown();
    const char* const ended = "value ended with the engine's shutdown";
    CHECK_FALSE(x.tile(0)->has_value());
    CHECK_THAT(error_of([&] { values_of(x); }), contains(ended));
    CHECK_THAT(error_of([&] { op("neg", {x}); }), contains(ended));
    start();  // a new session does not restore the value
    CHECK_THAT(error_of([&] { values_of(x); }), contains(ended));
    write_tensor(x, Integers{2}.data());
    CHECK(values_of(op("neg", {x}))[0] == -2);
}

TEST_CASE("tensors and programs may be destroyed before or after a shutdown, in any order") {
    const Session session;
    for (int order = 0; order < 16; ++order) {
        INFO(order);
        auto work = std::make_unique<Work>();
        const auto end = [&](bool now) {
            if (!now || !work) return;
            if (order & 1) work->x = Tensor();
            if (order & 2) work->program.reset();
            if (order & 4) work->y = Tensor();
        };
        end(order & 8);
        shutdown();
        end(!(order & 8));
        if (order == 0) {  // the program runs again once its tensors have values
            write_tensor(work->x, Integers{5}.data());
            CHECK(values_of(work->program->run({work->x})[0])[0] == 10);
        }
        work.reset();
    }
    CHECK(admitted_bytes() == 0);
}

TEST_CASE("a program whose tensors lost their values in a shutdown reports that") {
    const Session session;
    Work work;
    shutdown();
    CHECK_THAT(error_of([&] { work.program->run({work.x}); }), contains("engine's shutdown"));
    CHECK_THAT(error_of([&] { work.program->run({scalar_of(1)}); }), contains("engine's shutdown"));
}

TEST_CASE("many sessions can follow each other, with any workers and schedulers", "[sweep]") {
    const char* const schedulers[] = {"prio", "eager", "dmdas", "ws", ""};
    std::vector<Tensor> left;  // from ended sessions
    for (int i = 0; i < 40; ++i) {
        const Session session(1 + i % 2, schedulers[i % 5]);
        const Tensor x = numbered_tensor(grid_of({30}, {7}), i);
        REQUIRE(values_of(op("sum", {x}))[0] == 30 * i + 29 * 30 / 2);
        if (i % 3 == 0) left.push_back(x);
        if (i % 4 == 0) idle();
        if (i % 7 == 0) left.clear();
    }
}

TEST_CASE("only the thread that started the engine receives signals, no worker does") {
    const Session session;
    start();
    handled = false;
    const auto before = std::signal(SIGTERM, note_signal);
    sigset_t term, old;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, &old);  // a thread without the block would receive it
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const bool handled_elsewhere = handled;
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    std::signal(SIGTERM, before);
    CHECK_FALSE(handled_elsewhere);
    CHECK(handled);
}

TEST_CASE("every check raises an interrupt until it is cleared") {
    const Session session;
    CHECK_NOTHROW(check_pending());
    CHECK_FALSE(clear_interrupt());
    request_interrupt();
    CHECK(interrupt_requested());
    CHECK_THROWS_AS(check_pending(), Interrupted);
    CHECK_THROWS_AS(check_pending(), Interrupted);
    defer_interrupts(true);
    CHECK_NOTHROW(check_pending());
    CHECK(interrupt_requested());
    defer_interrupts(false);
    CHECK(clear_interrupt());
    CHECK_FALSE(interrupt_requested());
    CHECK_NOTHROW(check_pending());
}

TEST_CASE("an interrupt ends a wait at once, unless deferred, and the tasks continue") {
    const Session session;
    const Tensor x = scalar_of(1);
    const Gate closed;
    emit_gate(x.tile(0));
    emit_note(x.tile(0), 1);
    std::thread signaller([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        request_interrupt();
    });
    CHECK_THROWS_AS(wait_all(), Interrupted);
    signaller.join();
    CHECK(Gate::closed);
    defer_interrupts(true);
    std::thread opener([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        Gate::open();
    });
    CHECK_NOTHROW(wait_all());
    CHECK_FALSE(Gate::closed);
    opener.join();
    clear_interrupt();
    CHECK(Notes::take() == std::vector<double>{1});
}

TEST_CASE("a scalar keeps its value until it is freed, and an unknown one is an error") {
    const int32_t a = new_scalar(1.5), b = new_scalar(2.5);
    CHECK(a != b);
    set_scalar(a, -1);
    CHECK(scalar_value(a) == -1);
    CHECK(scalar_value(b) == 2.5);
    free_scalar(a);
    for (int32_t scalar : {a, -1, INT32_MIN, INT32_MAX}) {
        INFO(scalar);
        CHECK_THAT(error_of([&] { scalar_value(scalar); }), contains("freed scalar"));
        CHECK_THROWS_AS(set_scalar(scalar, 0), Error);
        CHECK_THROWS_AS(free_scalar(scalar), Error);
        CHECK_THROWS_AS(hold_scalar(scalar), Error);
    }
    CHECK(new_scalar(4) == a);  // numbers are reused
    free_scalar(a), free_scalar(b);
}

TEST_CASE("a held scalar remains readable after its owner freed it, and is not reused") {
    const int32_t scalar = new_scalar(3);
    hold_scalar(scalar);
    free_scalar(scalar);
    CHECK(scalar_value(scalar) == 3);
    CHECK_THAT(error_of([&] { free_scalar(scalar); }), contains("freed before"));
    const int32_t other = new_scalar(4);
    CHECK(other != scalar);
    release_scalar(scalar);
    CHECK_THROWS_AS(scalar_value(scalar), Error);
    free_scalar(other);
}

TEST_CASE("a seed resets the random counter to 0, and each draw increments it") {
    const Session session;
    seed_random(17);
    CHECK(random_seed() == 17);
    const auto draw = [] { return bytes_of(op("uniform", {}, {list({50})})); };
    const auto first = draw(), second = draw();
    CHECK(first != second);
    CHECK(random_counter() == 2);
    set_random_counter(1);
    CHECK(draw() == second);
    seed_random(17);
    CHECK(draw() == first);
    seed_random(18);
    CHECK(draw() != first);
}

TEST_CASE("a profile counts the calls of each kernel while it is on") {
    const Session session;
    const Kernel* neg = find_kernel("neg");
    const Tensor x = numbered_tensor(grid_of({6}, {2}));
    start_profile();
    for (int i = 0; i < 5; ++i) op("neg", {x});
    wait_all();
    CHECK(kernel_stat(neg).calls == 15);
    CHECK(kernel_stat(neg).flops == 30);
    CHECK(kernel_stat(find_kernel("fill")).calls == 0);
    enable_profile(false);
    op("neg", {x});
    wait_all();
    CHECK(kernel_stat(neg).calls == 0);
}

}  // namespace nn::engine_test
