// Tells a hang from work: what is under way on every worker, and an error for the thread that waits
// when a task does not end, or nothing moves, for longer than NNLUA_WATCHDOG seconds.
#pragma once
#include "engine/task.h"

namespace nn {

// On a worker's thread. Place 0 is what the thread itself runs, the others are what a GPU has
// under way; ends() may be called where nothing began.
constexpr int watched_places = 17;
void watch_begins(const TaskArg& arg, int place);
void watch_ends(int place);
struct Watched {  // what the calling worker's thread runs
    explicit Watched(const TaskArg& arg) { watch_begins(arg, 0); }
    ~Watched() { watch_ends(0); }
    Watched(const Watched&) = delete;
};

// Called again and again by the main thread while it waits; throws where something hangs.
void look_for_hangs();
bool hangs();           // whether it threw at its last look
void start_watchdog();  // reads NNLUA_WATCHDOG; throws where that is no number

}  // namespace nn
