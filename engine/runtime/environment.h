// What StarPU reads from the environment. StarPU aborts the process for most wrong values, so they
// are checked before it starts.
#pragma once
#include <cstdint>
#include <string>

namespace nn {

// Throws unless StarPU has the scheduler, and every program runs with it. "" means the default.
void check_scheduler(const std::string& name);
// Sets StarPU's variables; the user's values stay, except limits of CPU memory. Throws for settings
// with which StarPU cannot start. threads: the number that the session will create.
void prepare_environment(int threads);
// Sets a variable from an option. Without the option (0), unsets a value that an earlier call set
// (`ours`), and keeps the user's.
void set_option(const char* name, int64_t value, bool& ours);

// While it exists, a crash in StarPU ends the process with a message that names the variables that
// the user has set for StarPU.
class StartGuard {
public:
    StartGuard();
    ~StartGuard();
    StartGuard(const StartGuard&) = delete;
};

}  // namespace nn
