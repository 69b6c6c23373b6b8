#include "bindings/launcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/grace.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/ranks/transport.h"
#include "engine/ranks/watch.h"
#include "engine/runtime/ranks.h"

namespace nn {
namespace {

constexpr double seconds_to_start = 10;
constexpr double seconds_to_end = 5;      // of mpirun, after rank 0 has ended
constexpr double seconds_to_print = 0.3;  // mpirun passes on what the ranks wrote

// is_starting: all ranks are on this host, and rank 0 has not connected, for seconds_to_start at
// most. ends_start: a signal came meanwhile.
volatile std::sig_atomic_t child = 0, stops = 0, first_stop = 0, is_starting = 0, ends_start = 0;

// mpirun ends its processes one second after Ctrl-C, but forwards SIGUSR2, which ranks take as a
// stop signal. A second signal ends them. While mpirun starts, it may lose SIGUSR2.
void on_stop(int signal) {
    if (stops == 0) first_stop = signal, ends_start = is_starting;
    stops = stops + 1;
    if (child > 0 && (stops == 1 || !ends_start))
        kill(child, stops == 1 && !ends_start ? SIGUSR2 : SIGTERM);
}
// SIGUSR2 would stop the ranks; SIGUSR1 asks for the same as both do in one process.
void on_save(int) {
    if (child > 0) kill(child, SIGUSR1);
}

// In the first process of the launcher, to the second one.
void pass_on(int signal) { kill(child, signal); }

void handle(int signal, void (*handler)(int)) {
    struct sigaction action = {};
    // What the parent ignores stays ignored, such as SIGHUP under nohup(1).
    const bool is_ignored =
        sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (is_ignored && signal != SIGINT && signal != SIGTERM) return;
    action = {};
    action.sa_handler = handler;
    sigaction(signal, &action, nullptr);
}

// Whether the folders of PATH contain a program.
bool is_installed(const std::string& program) {
    const char* path = std::getenv("PATH");
    std::string folders = path ? path : "";
    for (size_t at = 0; at <= folders.size();) {
        const size_t end = std::min(folders.find(':', at), folders.size());
        if (access((folders.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
        at = end + 1;
    }
    return false;
}

std::vector<std::string> arguments_of_mpirun(const RanksWanted& wanted) {
    std::vector<std::string> out = {"mpirun", "--quiet", "-np", wanted.number, "--bind-to", "none"};
    if (geteuid() == 0) out.push_back("--allow-run-as-root");
    if (wanted.hosts.empty())
        out.push_back("--oversubscribe");  // as many as asked for, on this host
    else
        out.insert(out.end(), {"--host", wanted.hosts, "--map-by", "node", "--oversubscribe"});
    for (char** variable = environ; *variable; ++variable) {
        const std::string text = *variable, name = text.substr(0, text.find('='));
        const bool is_ours = name.rfind("NNLUA_", 0) == 0 || name.rfind("STARPU_", 0) == 0;
        if (is_ours && !wanted.hosts.empty()) out.insert(out.end(), {"-x", name});
    }
    return out;
}

// mpirun may end with a status alone if it cannot start a process on a host. Rank 0 may also have
// printed an error and not have reached this launcher.
void explain_end_before_ranks(const std::string& hosts, int status) {
    std::fprintf(
        stderr,
        "nnlua: mpirun ended with status %d, and no rank reported to this launcher. If no other "
        "message says why: each of the hosts (%s) must accept `ssh HOST true` without a password "
        "or prompt, and have nnlua and OpenMPI at the same paths as this one.\n",
        status, hosts.c_str());
}

// Ends ranks whose step lasts longer than the limit after SIGTERM.
struct Grace {
    const double limit = grace_limit();
    double end = 0;
    void check(double now, const RankWatch& watch) {
        if (limit == 0 || stops == 0 || first_stop != SIGTERM || watch.is_between_steps()) return;
        if (end == 0) end = now + limit;
        if (now < end || stops > 1) return;
        std::fprintf(stderr,
                     "\nnnlua: the ranks' step did not end within %g s of SIGTERM and is given up "
                     "(NNLUA_GRACE=SECONDS sets this limit). The last checkpoint remains; "
                     "resume=auto continues from it.\n",
                     limit);
        on_stop(SIGTERM);
    }
};

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Gives the first process its exit code after a signal, so that it need not wait for mpirun, which
// ends one or two seconds after its ranks.
void report_code(int pipe, int code) {
    prctl(PR_SET_PDEATHSIG, 0);
    const auto byte = static_cast<unsigned char>(code);
    [[maybe_unused]] const ssize_t written = write(pipe, &byte, 1);
    close(pipe);
}

// mpirun would give its processes a second, in which ranks that start begin their work.
void kill_children(pid_t pid) {
    std::error_code ended;
    for (const auto& thread :
         std::filesystem::directory_iterator(format("/proc/%d/task", int(pid)), ended)) {
        std::ifstream children(thread.path() / "children");
        for (pid_t one; children >> one;) kill(one, SIGKILL);
    }
}

// mpirun leaves its folder, such as /tmp/ompi.HOST.0/pid.1234, if a signal ends it.
void remove_folder_of(pid_t pid) {
    std::error_code missing;
    namespace fs = std::filesystem;
    for (const auto& entry : fs::directory_iterator(fs::temp_directory_path(missing), missing)) {
        if (entry.path().filename().string().rfind("ompi.", 0) != 0) continue;
        fs::remove_all(entry.path() / format("pid.%d", int(pid)), missing);
        fs::remove(entry.path(), missing);  // if it is empty
    }
}

int wait_for_child(pid_t pid, RankWatch* watch, int pipe) {
    int status = 0;
    double lost_for = 0;
    bool has_reported = false;
    Grace grace;
    const double start = now_seconds();
    for (double before = start;;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) break;
        if (ended < 0 && errno != EINTR) return 1;
        watch->wait(0.02);
        const double now = now_seconds();
        if (watch->has_met_rank() || now - start > seconds_to_start) is_starting = 0;
        grace.check(now, *watch);
        if (watch->has_lost_rank() || ends_start) lost_for += std::min(now - before, 1.0);
        before = now;
        if (ends_start) kill_children(pid);
        const bool is_over = stops == 1 && (ends_start || lost_for > seconds_to_print);
        if (is_over && !std::exchange(has_reported, true)) report_code(pipe, 128 + first_stop);
        if (lost_for < seconds_to_end) continue;
        if (!has_reported)
            std::fprintf(
                stderr,
                "nnlua: rank 0 has ended or does not answer, and mpirun did not end within "
                "%g s; it is killed. Ranks on hosts that it cannot reach end by themselves.\n",
                seconds_to_end);
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
        remove_folder_of(pid);
        return 1;
    }
    if (ends_start) remove_folder_of(pid);
    if (stops > 0) return 128 + first_stop;
    return code_of(status);
}

// In a new process: it gets the signal when its parent ends.
void end_with(pid_t parent, int signal) {
    prctl(PR_SET_PDEATHSIG, signal);
    if (getppid() != parent) _exit(1);
}

// The words reach mpirun and ssh, which would take one that begins with "-" as an option.
void check(const RanksWanted& wanted) {
    const std::string& number = wanted.number;
    const bool is_number = !number.empty() && number.size() <= 5 &&
                           number.find_first_not_of("0123456789") == number.npos;
    if (!is_number || std::stoi(number) < 1 || std::stoi(number) > 65535)
        fail("--ranks is '%s'; a number from 1 to 65535 is needed", number.c_str());
    if (wanted.hosts.empty()) return;
    std::istringstream hosts(wanted.hosts + ",");
    for (std::string host; std::getline(hosts, host, ',');) {
        const bool is_name = std::all_of(host.begin(), host.end(), [](unsigned char c) {
            return c < 128 && (std::isalnum(c) || std::strchr("._:-", c));
        });
        if (host.empty() || host[0] == '-' || !is_name)
            fail(
                "--hosts is '%s', in which '%s' is not a host name; use letters, digits, '.', '_', "
                "':' and '-', and do not begin with '-'",
                wanted.hosts.c_str(), host.c_str());
    }
}

// The arguments without --ranks and --hosts.
std::vector<std::string> command_of(int argc, char** argv) {
    std::vector<std::string> out;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--ranks" || word == "--hosts") {
            ++i;
            continue;
        }
        const bool has_argument = word == "-e" || word == "-l";
        if (word[0] != '-' || word == "-" || word == "--") {  // of the script from here on
            out.insert(out.end(), argv + i, argv + argc);
            break;
        }
        out.push_back(word);
        if (has_argument && i + 1 < argc) out.push_back(argv[++i]);
    }
    return out;
}

// Starts mpirun and waits for it.
int run_ranks(const RanksWanted& wanted, const std::vector<std::string>& command, int pipe) {
    RankWatch watch;  // changes the environment
    std::vector<std::string> words = arguments_of_mpirun(wanted);
    std::error_code ignored;
    words.push_back(std::filesystem::read_symlink("/proc/self/exe", ignored).string());
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) fail("the system starts no process for mpirun (%s)", std::strerror(errno));
    if (pid == 0) {
        setpgid(0, 0);  // also of what mpirun starts
        end_with(parent, SIGTERM);
        if (const int none = open("/dev/null", O_RDONLY); none >= 0) dup2(none, STDIN_FILENO);
        execvp(argv[0], argv.data());
        std::fprintf(stderr, "nnlua: cannot run mpirun: %s\n", std::strerror(errno));
        _exit(1);
    }
    child = pid, is_starting = wanted.hosts.empty();
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, on_stop);
    for (int signal : {SIGUSR1, SIGUSR2}) handle(signal, on_save);
    const int status = wait_for_child(pid, &watch, pipe);
    if (status != 0 && stops == 0 && !wanted.hosts.empty() && !watch.has_met_rank())
        explain_end_before_ranks(wanted.hosts, status);
    return status;
}

}  // namespace

void join_ranks(int argc, char** argv) {
    std::string work;
    for (int i = 1; i < argc; ++i) work += (i > 1 ? " " : "") + std::string(argv[i]);
    const char* all = std::getenv("NNLUA_ALL_RANKS");
    if (ranks().rank > 0 && !(all && *all == '1'))
        if (const int none = open("/dev/null", O_WRONLY); none >= 0) dup2(none, STDOUT_FILENO);
    start_ranks(work);
}

void leave_ranks() {
    try {
        finish_ranks();
    } catch (const std::exception& e) {
        control::fail_all(e.what());
    }
}

// The first process returns when the ranks have ended. Its child, the second, waits for mpirun.
int launch_ranks(const RanksWanted& wanted, int argc, char** argv) {
    const std::vector<std::string> command = command_of(argc, argv);
    check(wanted);
    transport::check_installed(is_installed("mpirun"));
    if (!isatty(STDOUT_FILENO))
        setenv("NNLUA_RANKS_OUTPUT", "file", 1);  // lua/nn/base/terminal.lua
    int ends[2];
    const pid_t parent = getpid(), pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid < 0) fail("the system starts no process for the ranks (%s)", std::strerror(errno));
    if (pid == 0) {
        setpgid(0, 0);  // Ctrl-C on the terminal reaches the parent alone
        end_with(parent, SIGKILL);
        close(ends[0]);
        return run_ranks(wanted, command, ends[1]);
    }
    child = pid;
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) handle(signal, pass_on);
    close(ends[1]);
    unsigned char code = 0;
    ssize_t bytes;
    do bytes = read(ends[0], &code, 1);
    while (bytes < 0 && errno == EINTR);
    if (bytes == 1) return code;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return code_of(status);
}

}  // namespace nn
