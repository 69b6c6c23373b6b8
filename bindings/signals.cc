#include "bindings/signals.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {
#include <lauxlib.h>
#include <lua.h>
}

#include "bindings/mapped_files.h"
#include "engine/base/exit_files.h"
#include "engine/base/grace.h"
#include "engine/base/interrupts.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/watch.h"

namespace nn {
namespace {

lua_State* state = nullptr;
volatile std::sig_atomic_t last = 0, unhandled = 0;  // last: stop signal or SIGPIPE
std::atomic<bool> save_asked{false}, ends_at_once{false};
bool is_first_rank = true;   // only rank 0 prints
std::string library_source;  // how the names of the library's chunks begin

// If a step does not end within a limit after SIGTERM, the process gives it up. The timer's signal
// is SIGRTMAX.
struct Grace {
    bool has_timer = false;
    timer_t timer{};
    itimerspec limit{};
    char begin[200] = "";  // of the message
    char end[4000] = "";   // what remains then; "" unless a run trains
    timespec saved_at{};   // since when `end` is known
} grace;

// The first stop signal: its time, and whether a training run was to be saved then.
timespec first_time;
bool first_was_deferred = false;

bool is_c(lua_State* L, lua_Debug* here) {
    return !lua_getinfo(L, "S", here) || *here->what == 'C';
}
bool is_library_or_c(lua_State* L, lua_Debug* here) {
    return is_c(L, here) ||
           std::strncmp(here->source, library_source.c_str(), library_source.size()) == 0;
}

// Runs at Lua's next step and raises an error there. JIT-compiled loops call no hook; engine calls
// test the flag themselves. A pcall of a Lua function can catch the first error, and a pcall of a C
// function cannot. If another signal arrives before clear_signals(), every step of code outside the
// library raises the error, so a loop with pcall ends.
void interrupt_hook(lua_State* L, lua_Debug* here) {
    const bool deferred = interrupts_deferred(), again = unhandled > 1 && !deferred;
    if (again ? is_library_or_c(L, here) : !deferred && is_c(L, here)) return;
    if (!again) lua_sethook(L, nullptr, 0, 0);
    if (deferred) return;
    if (clear_interrupt() || again) luaL_error(L, "interrupted");
}

double seconds_between(const timespec& a, const timespec& b) {
    return double(b.tv_sec - a.tv_sec) + 1e-9 * double(b.tv_nsec - a.tv_nsec);
}

// Whether a signal may be a repetition of the first one: timeout(1) sends SIGTERM to its child and
// then to the child's group; Linux repeats SIGXCPU every second. While a run is to be saved, all
// signals within a second count as one; otherwise the same signal within 0.1 seconds does.
bool repeats_first(int signal, const timespec& now) {
    const double seconds = seconds_between(first_time, now);
    const bool saves = interrupt_requested() && (first_was_deferred || interrupts_deferred());
    return saves ? signal == SIGXCPU || seconds < 1 : signal == last && seconds < 0.1;
}

void write_text(const char* text) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

[[noreturn]] void give_step_up() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char digits[24], *first = digits + sizeof digits;
    *--first = 0;
    for (auto left = int64_t(seconds_between(grace.saved_at, now)); left || !*first; left /= 10)
        *--first = char('0' + left % 10);
    for (const char* text : {static_cast<const char*>(grace.begin), static_cast<const char*>(first),
                             static_cast<const char*>(grace.end)})
        write_text(text);
    exit_files::end_process(128 + SIGTERM);
}

void on_signal(int signal) {
    if (ends_at_once) {
        const char text[] = "\nnnlua: interrupted\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        exit_files::end_process(128 + signal);
    }
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (last != SIGPIPE && repeats_first(signal, now)) return;
    if (last != SIGPIPE && interrupt_requested()) exit_files::end_process(128 + signal);
    first_time = now;
    first_was_deferred = interrupts_deferred();
    if (signal == SIGTERM && first_was_deferred && grace.has_timer)
        timer_settime(grace.timer, 0, &grace.limit, nullptr);
    last = signal;
    unhandled = unhandled + 1;
    request_interrupt();
    if (first_was_deferred) {
        if (!is_first_rank) return;
        const char text[] =
            "\nfinishing this step and saving; another signal after one second quits at once\n";
        const int error = errno;
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        errno = error;
    } else if (state) {
        lua_sethook(state, interrupt_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
    }
}

void on_timer_or_signal(int signal, siginfo_t* info, void*) {
    if (info->si_code != SI_TIMER) return on_signal(signal);
    if (grace.end[0]) give_step_up();
}

// The reader of our output is gone: a training run saves and ends, any other run ends at once.
void on_broken_pipe(int signal) {
    if (!interrupts_deferred()) exit_files::end_process(128 + signal);
    if (interrupt_requested()) return;
    last = signal;
    request_interrupt();
}

// A training run saves after this step and continues; other programs ignore the signal.
void on_save_signal(int) { save_asked = true; }

// Does nothing: an interrupted wait for a key sees that the terminal was resized (SIGWINCH) or that
// the program continued (SIGCONT); a write beyond the limit of ulimit -f fails (SIGXFSZ).
void on_other(int) {}

// A signal that the parent process ignores stays ignored, such as SIGHUP under nohup(1), unless
// `always` is set: scripts start programs in the background with SIGINT ignored, and some parents
// ignore SIGPIPE, but these must still save a run. on_other() needs all of its signals.
void handle(int signal, void (*handler)(int), bool always = false) {
    struct sigaction action = {};
    if (!always && sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
    action = {};
    action.sa_handler = handler;
    sigfillset(&action.sa_mask);  // handlers do not interrupt each other
    for (int crash : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
        sigdelset(&action.sa_mask, crash);
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(signal, &action, nullptr);
}

void install_timer(double seconds) {
    if (seconds == 0) return;
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMAX;
    grace.has_timer = timer_create(CLOCK_MONOTONIC, &event, &grace.timer) == 0;
    grace.limit.it_value.tv_sec = time_t(seconds);
    grace.limit.it_value.tv_nsec = long((seconds - double(time_t(seconds))) * 1e9);
    std::snprintf(grace.begin, sizeof grace.begin,
                  "\nnnlua: the step did not end within %g s of SIGTERM and is given up "
                  "(NNLUA_GRACE=SECONDS sets this limit); seconds of training that are lost: ",
                  seconds);
    struct sigaction action = {};
    if (sigaction(SIGRTMAX, nullptr, &action) != 0) return;
    action.sa_sigaction = on_timer_or_signal;
    action.sa_flags |= SA_SIGINFO;
    sigaction(SIGRTMAX, &action, nullptr);
}

// set_remains(text): what a run that gives its step up leaves; without a text: no step runs.
int set_remains(lua_State* L) {
    const char* const text = lua_tostring(L, 1);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::snprintf(grace.end, sizeof grace.end, text ? ". %s\n" : "%s", text ? text : "");
    clock_gettime(CLOCK_MONOTONIC, &grace.saved_at);
    const itimerspec never = {};
    if (!text && grace.has_timer) timer_settime(grace.timer, 0, &never, nullptr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    watch::set_between_steps(!text);
    return 0;
}

// Products of oneDNN (seen in version 2.6.3) keep values below the stack pointer, beyond the 128
// bytes that the system leaves alone. A handler on the same stack overwrites them, and the product
// then writes anywhere. The main thread measures products, so its handlers have their own stack.
void use_own_stack() {
    static char memory[64 << 10];  // of which the registers of AVX-512 and AMX take 11 kB
    stack_t own = {};
    own.ss_sp = memory, own.ss_size = sizeof memory;
    sigaltstack(&own, nullptr);
}

int push_last_signal(lua_State* L) {
    lua_pushinteger(L, last);
    return 1;
}

int take_save_asked(lua_State* L) {
    lua_pushboolean(L, save_asked.exchange(false));
    return 1;
}

int clear_signals(lua_State* L) {
    lua_sethook(L, nullptr, 0, 0);
    unhandled = 0;
    clear_interrupt();
    return 0;
}

int end_at_once(lua_State* L) {
    ends_at_once = lua_toboolean(L, 1) != 0;
    return 0;
}

int forget_signals(lua_State* L) {
    last = 0;
    return clear_signals(L);
}

// mpirun forwards few signals; the launcher sends SIGUSR2 to stop all ranks.
void on_stop_of_ranks(int) { on_signal(SIGINT); }

}  // namespace

// All signals that would end the program by default, except SIGQUIT and those of a crash.
bool install_signal_handlers() {
    double limit = 0;
    try {
        limit = grace_limit();
    } catch (const Error& e) {
        std::fprintf(stderr, "nnlua: %s\n", e.what());
        return false;
    }
    use_own_stack();
    for (int signal : {SIGINT, SIGTERM}) handle(signal, on_signal, true);
    for (int signal : {SIGHUP, SIGXCPU, SIGPWR, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGSTKFLT})
        handle(signal, on_signal);
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) handle(signal, on_signal);
    install_timer(limit);
    for (int signal : {SIGUSR1, SIGUSR2}) handle(signal, on_save_signal);
    is_first_rank = ranks().rank == 0;
    if (ranks().several()) handle(SIGUSR2, on_stop_of_ranks);
    handle(SIGPIPE, on_broken_pipe, true);
    for (int signal : {SIGWINCH, SIGCONT, SIGXFSZ}) handle(signal, on_other, true);
    install_bus_handler();
    return true;
}

void raise_signals_in(lua_State* L, const std::string& library) {
    library_source = library;
    state = L;
}

int last_signal() { return last; }

void add_signal_functions(lua_State* L) {
    const luaL_Reg functions[] = {{"signal", push_last_signal},
                                  {"save_asked", take_save_asked},
                                  {"clear_signals", clear_signals},
                                  {"end_at_once", end_at_once},
                                  {"forget_signals", forget_signals},
                                  {"set_remains", set_remains},
                                  {nullptr, nullptr}};
    luaL_register(L, nullptr, functions);
}

}  // namespace nn
