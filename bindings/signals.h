// The signals of the program `nnlua`. A training run is saved before a signal ends it; other Lua
// code gets an error.
#pragma once
#include <string>

struct lua_State;

namespace nn {

bool install_signal_handlers();  // false after it printed that NNLUA_GRACE is wrong
// Signals raise errors in this state from now on. library: the prefix of the library's chunk names;
// a second signal does not interrupt the library's code.
void raise_signals_in(lua_State* L, const std::string& library);
int last_signal();  // the last stop signal or SIGPIPE that is not forgotten, or 0

// For nn.host: signal() -> last_signal(); save_asked() -> whether SIGUSR1 or SIGUSR2 arrived since
// the last call; clear_signals() marks all signals as handled, but an error that ends the program
// still has the exit status of the last one; forget_signals() clears that too; after
// end_at_once(true), a stop signal ends the process without waiting for anything; set_remains(text)
// says, while steps of a run compute, what remains if one is given up after SIGTERM; set_remains()
// says that none computes.
void add_signal_functions(lua_State* L);  // to the table on the top of the stack

}  // namespace nn
