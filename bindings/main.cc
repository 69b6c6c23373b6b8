// The program `nnlua`: command line, one lua_State and an orderly exit. The library that scripts
// use is in lua/.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

extern "C" {
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
}

#include "bindings/launcher.h"
#include "bindings/mapped_files.h"
#include "bindings/nn.h"
#include "bindings/progress.h"
#include "bindings/signals.h"
#include "engine/base/error.h"
#include "engine/base/exit_files.h"
#include "engine/base/heap.h"
#include "engine/base/interrupts.h"
#include "engine/base/kept_file.h"
#include "engine/base/user_cache.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/workers/waits.h"
#include "engine/workers/watchdog.h"
#include "nn_version.h"

namespace {

const char* const usage =
    "usage: nnlua [options] [script [arguments]]\n"
    "  nnlua                  an interactive session\n"
    "  nnlua SCRIPT ARGS      run a script; '-' is standard input; recipes/NAME.lua is one of\n"
    "                         nnlua's own recipes unless this folder has one. A module such as\n"
    "                         models.gpt2, models/gpt2.lua, comes from this folder, else from\n"
    "                         the script's, LUA_PATH, nnlua; nn and nn.* always from nnlua\n"
    "  -e CODE                run CODE\n"
    "  -i                     start a session after the script or -e\n"
    "  -l NAME                require NAME first\n"
    "  --ranks N              run the script on N processes (ranks) that share the work\n"
    "  --hosts A,B            start the ranks on these hosts, in turn; with --ranks\n"
    "  --doc                  write docs/reference.md of this source tree\n"
    "  --version              versions of nnlua and its libraries\n"
    "  --health               check this machine: what nnlua uses, and what to do about problems\n"
    "  --help                 this text\n"
    "  --                     the end of nnlua's own options\n"
    "A recipe's options follow its name: nnlua recipes/gpt2_train.lua --help\n"
    "Environment: NNLUA_CPUS (number of CPU workers), NNLUA_ISA (baseline, avx2, avx512),\n"
    "NNLUA_WATCHDOG (seconds after which a task counts as hung; 0: never), NNLUA_GRACE\n"
    "(seconds that a step has to end after SIGTERM; 0: no limit), STARPU_SCHED,\n"
    "OPENBLAS_CORETYPE, NNLUA_PRODUCTS (openblas, onednn, matmul, loops; default: the fastest).\n"
    "Signals to a training run: SIGINT, SIGTERM and SIGHUP save and end it, SIGUSR1 saves and\n"
    "continues; see nnlua(1).\n";

lua_State* state = nullptr;

// A closed descriptor 0, 1 or 2 becomes /dev/null: a file that the program opens must not take its
// number, and then the program's output.
void open_standard_descriptors() {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

// nn.host.watch(address, bytes), unwatch(address), damaged(address): see mapped_files.h.
int watch(lua_State* L) {
    nn::watch_mapping(uintptr_t(luaL_checknumber(L, 1)), size_t(luaL_checknumber(L, 2)));
    return 0;
}
int unwatch(lua_State* L) {
    nn::unwatch_mapping(uintptr_t(luaL_checknumber(L, 1)));
    return 0;
}
int damaged(lua_State* L) {
    lua_pushboolean(L, nn::mapping_is_damaged(uintptr_t(luaL_checknumber(L, 1))));
    return 1;
}

// The folder of lua/, models/ and recipes/: NNLUA_PATH, the installed one, or the source tree.
std::string library_root() {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (const char* path = std::getenv("NNLUA_PATH"); path && *path) return path;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
    const fs::path installed = (program.parent_path() / NN_INSTALL_SHARE).lexically_normal();
    if (fs::exists(installed / "lua/nn/init.lua", ignored)) return installed.string();
    return NN_SOURCE_DIR;
}

// Pushes a function that the library has put into the table nn.host; false if there is none.
bool push_host_function(lua_State* L, const char* name) {
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    lua_getfield(L, -1, "nn.host");
    if (!lua_istable(L, -1)) return false;
    lua_getfield(L, -1, name);
    return lua_isfunction(L, -1);
}

// Pushes the message with the advice and traceback that nn.host.traced adds (lua/nn/base/capi.lua);
// false if the library is not loaded.
bool add_advice(lua_State* L) {
    if (!push_host_function(L, "traced")) return false;
    lua_pushvalue(L, 1);
    return lua_pcall(L, 1, 1, 0) == 0 && luaL_callmeta(L, -1, "__tostring");
}

// A user-facing error (a table of lua/nn/base/capi.lua with a __tostring) stays as it is; any other
// gets a traceback.
int add_traceback(lua_State* L) {
    if (lua_istable(L, 1) && luaL_callmeta(L, 1, "__tostring")) return 1;
    if (!lua_isstring(L, 1)) {
        lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
        return 1;
    }
    const std::string message = lua_tostring(L, 1), hook = ": interrupted";
    const bool hooked = message.size() > hook.size() &&
                        message.compare(message.size() - hook.size(), hook.size(), hook) == 0;
    if (hooked || message == "interrupted")
        lua_pushliteral(L, "interrupted");
    else if (!add_advice(L))
        luaL_traceback(L, L, message.c_str(), 1);
    return 1;
}

// Calls nn.host.failed(message), which saves what a training run can save and returns the text to
// print below the error, or nil (lua/nn/train/ending.lua).
int print_advice(lua_State* L) {
    const char* message = static_cast<const char*>(lua_touserdata(L, 1));
    if (!push_host_function(L, "failed")) return 0;
    lua_pushstring(L, message);
    lua_call(L, 1, 1);
    if (lua_isstring(L, -1)) std::fprintf(stderr, "%s\n", lua_tostring(L, -1));
    return 0;
}

void call_without_signals(lua_CFunction function, const char* argument) {
    if (!state) return;
    const int top = lua_gettop(state);
    lua_sethook(state, nullptr, 0, 0);  // a pending interrupt remains for stop_engine()
    lua_cpcall(state, function, const_cast<char*>(argument));
    lua_settop(state, top);
}

// Prints an error and returns the exit code for it.
int report(const char* text) {
    const std::string message = text ? text : "(no message)";
    std::fflush(stdout);
    if (nn::ranks().rank > 0) nn::control::fail_all(message);  // rank 0 prints it
    std::fprintf(stderr, "nnlua: %s\n", message.c_str());
    call_without_signals(print_advice, message.c_str());
    const int code = nn::last_signal() ? 128 + nn::last_signal() : 1;
    if (!nn::ranks().several()) return code;
    nn::control::end_all(code);
}

// Calls a function, which leaves `results` on the stack. Returns an exit code: 0, or after an error
// that of report().
int call(lua_State* L, int arguments, int results = 0) {
    const int handler = lua_gettop(L) - arguments;
    lua_pushcfunction(L, add_traceback);
    lua_insert(L, handler);
    const int status = lua_pcall(L, arguments, results, handler);
    lua_remove(L, handler);
    return status == 0 ? 0 : report(lua_tostring(L, -1));
}

// Waits for tasks that a script left running. If one fails, reports it and returns an error. After
// a reported hang or a signal, nothing waits for tasks any more.
int code_after_tasks(int code) {
    if (code != 0 && nn::hangs()) return code;
    if (nn::last_signal() && code == 128 + nn::last_signal()) {
        nn::request_interrupt();
        return code;
    }
    if (nn_sync() == NN_OK) return code;
    const int failed = report(nn_error());
    return code ? code : failed;
}

// Stops the workers; exits at once if one hangs or lost its GPU, or if a signal ended the wait for
// tasks.
void stop_engine(int code) {
    std::fflush(nullptr);
    nn::exit_files::remove_all();  // finalizers may not have run
    const bool has_stopped_waiting = nn::hangs() || nn::interrupt_requested();
    if (nn::gpu_is_lost() || (has_stopped_waiting && nn::unfinished_tasks() > 0))
        nn::exit_files::end_process(code ? code : 1);
    if (nn_shutdown() != NN_OK && nn::hangs()) nn::exit_files::end_process(code ? code : 1);
    if (nn::ranks().several()) nn::leave_ranks();
}

// os.exit waits for all tasks and stops the workers.
int exit_program(lua_State* L) {
    int code = lua_isboolean(L, 1) ? (lua_toboolean(L, 1) ? 0 : 1) : int(luaL_optinteger(L, 1, 0));
    code = code_after_tasks(code);
    stop_engine(code);
    std::exit(code);
}

// Runs lua/start.lua. package.loaded["nn.host"] is the library's interface to this program.
int open_state(int argc, char** argv, int script, bool is_session) {
    lua_State* L = state = luaL_newstate();
    lua_pushboolean(L, 1);  // start.lua adds LUA_PATH and LUA_CPATH
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    lua_newtable(L);
    for (int i = 0; i < argc; ++i) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
    const std::string root = library_root(), file = root + "/lua/start.lua";
    if (luaL_loadfile(L, file.c_str()) != 0)
        return report(
            nn::format("%s; NNLUA_PATH must be nnlua's folder", lua_tostring(L, -1)).c_str());
    const luaL_Reg functions[] = {
        {"watch", watch}, {"unwatch", unwatch}, {"damaged", damaged}, {nullptr, nullptr}};
    lua_newtable(L);
    luaL_register(L, nullptr, functions);
    nn::add_signal_functions(L);
    lua_pushstring(L, root.c_str());
    lua_pushcfunction(L, exit_program);
    lua_newtable(L);
    lua_pushliteral(L, NN_CJSON);
    lua_setfield(L, -2, "cjson");
    std::error_code ignored;
    const bool is_in_root = std::filesystem::equivalent(".", root, ignored);
    lua_pushstring(L, is_in_root ? root.c_str() : ".");
    lua_setfield(L, -2, "here");
    lua_pushboolean(L, is_session);
    lua_setfield(L, -2, "is_session");
    return call(L, 4);
}

int run_text(lua_State* L, const std::string& text, const char* name) {
    const int status = luaL_loadbuffer(L, text.data(), text.size(), name);
    return status == 0 ? call(L, 0) : report(lua_tostring(L, -1));
}

// The file for a script's name: one of nnlua's own recipes if this folder has no such file.
std::string script_file(const char* name) {
    const std::string own = library_root() + "/" + name;
    const bool here = access(name, F_OK) == 0 || std::strncmp(name, "recipes/", 8) != 0;
    return here || access(own.c_str(), F_OK) != 0 ? name : own;
}

// Defines `nn`, calls load(name) of lua/nn/io/script.lua, and then the script.
int run_script(lua_State* L, const char* name, int argc, char** argv, int first) {
    if (const int code = run_text(L, "nn = require 'nn'", "=nn")) return code;
    lua_getglobal(L, "require");
    lua_pushliteral(L, "nn.io.script");
    if (const int code = call(L, 1, 1)) return code;
    lua_getfield(L, -1, "load");
    lua_pushstring(L, name);
    if (const int code = call(L, 1, 2)) return code;
    if (lua_isnil(L, -2)) return report(lua_tostring(L, -1));
    lua_pop(L, 1);
    for (int i = first; i < argc; ++i) lua_pushstring(L, argv[i]);
    return call(L, argc - first);
}

int complain(const std::string& text) {
    std::fprintf(stderr, "nnlua: %s\n%s", text.c_str(), usage);
    return 2;
}

struct Options {
    std::vector<std::pair<std::string, const char*>> actions;  // code to run, and its chunk's name
    bool interactive = false, health = false;
    int script = 0;  // index in argv, 0: none
    nn::RanksWanted ranks;

    bool is_session() const { return interactive || (actions.empty() && !script && !health); }
};

// Returns an exit code, or -1 to continue.
int parse(int argc, char** argv, Options* options) {
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; ++i) {
        const std::string option = argv[i];
        if (option == "--") {
            ++i;
            break;
        }
        if (option == "--help" || option == "-h") {
            std::fputs(usage, stdout);
            return 0;
        }
        if (option == "--version" || option == "-v") {
            std::puts(nn_version());
            return 0;
        }
        if (option == "-i")
            options->interactive = true;
        else if (option == "--health")
            options->health = true;
        else if (option == "--doc")
            options->actions.push_back(
                {"require('nn'); require('nn.help.reference').write()", "=--doc"});
        else if (option == "--ranks" || option == "--hosts") {
            if (i + 1 == argc || !*argv[i + 1]) return complain(option + " needs an argument");
            (option == "--ranks" ? options->ranks.number : options->ranks.hosts) = argv[++i];
        } else if (option == "-e" || option == "-l") {
            if (i + 1 == argc) return complain(option + " needs an argument");
            const std::string text = argv[++i];
            if (option == "-e")
                options->actions.push_back({"nn = require 'nn'; " + text, "=(command line)"});
            else
                options->actions.push_back({"require '" + text + "'", "=-l"});
        } else
            return complain("unknown option " + option);
    }
    if (i < argc) options->script = i;
    return -1;
}

void check_ranks(const Options& options, char** argv) {
    if (options.is_session())
        nn::fail(
            "a session runs on one rank only; put the code into a script and run  nnlua --ranks N "
            "SCRIPT");
    if (options.script && std::strcmp(argv[options.script], "-") == 0)
        nn::fail("a script for several ranks cannot come from standard input; give a file");
}

// Returns an exit code, or -1 to go on as one rank or one of several.
int choose_ranks(const Options& options, int argc, char** argv) {
    const bool wanted = !options.ranks.number.empty() || !options.ranks.hosts.empty();
    try {
        if (!wanted && !nn::ranks().several()) return -1;
        check_ranks(options, argv);
        if (wanted && !nn::ranks().several()) return nn::launch_ranks(options.ranks, argc, argv);
        nn::join_ranks(argc, argv);
        return -1;
    } catch (const std::exception& e) {
        if (nn::control::started()) nn::control::fail_all(e.what());
        std::fprintf(stderr, "nnlua: %s\n", e.what());
        _exit(1);  // mpirun ends the other ranks
    }
}

int run(int argc, char** argv) {
    Options options;
    int early = parse(argc, argv, &options);
    if (early < 0) early = choose_ranks(options, argc, argv);
    if (early >= 0) return early;
    std::string script;
    if (options.script) {
        script = script_file(argv[options.script]);
        argv[options.script] = script.data();
    }
    const int first = options.script ? options.script : argc;
    if (const int code = open_state(argc, argv, first, options.is_session())) return code;
    nn::raise_signals_in(state, nn::format("@%s/lua/", library_root().c_str()));
    if (!nn::install_signal_handlers()) return 1;
    nn::show_progress();
    if (options.health) return run_text(state, "require('health').run()", "=health");
    int code = 0;
    // code that is loaded before a session must be interruptible
    if (options.interactive) code = run_text(state, "require('repl').prepare()", "=repl");
    for (const auto& [text, name] : options.actions)
        if (code == 0) code = run_text(state, text, name);
    if (code == 0 && options.script)
        code = run_script(state, argv[options.script], argc, argv, options.script + 1);
    if (options.is_session()) code = run_text(state, "require('repl').run()", "=repl");
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    nn::limit_free_memory();
    nn::keep_files_in(nn::user_cache(), NN_VERSION_GIT);
    open_standard_descriptors();
    const int code = code_after_tasks(run(argc, argv));
    // Finalizers first, the engine after them. After a signal the system frees Lua's memory: with
    // hundreds of thousands of tensors, their finalizers take seconds.
    nn::raise_signals_in(nullptr, "");
    if (state && code <= 128) {
        lua_close(state);
        state = nullptr;
    }
    stop_engine(code);
    return code;
}
