// Long work of the engine outside of tasks, such as planning. Its loops call still_working(), so
// that a signal can stop it, and report how far it is. Whoever can handle these calls sets the
// functions: the runtime, and the program. Main thread only.
#pragma once

namespace nn {

struct WorkHandlers {
    void (*check_stop)() = nullptr;         // throws Interrupted
    bool (*is_urgent)() = nullptr;          // a signal waits for the end of the work
    void (*report)(const char*) = nullptr;  // what is being done; nullptr: it has ended
};
inline WorkHandlers work_handlers;

inline void still_working() {
    if (work_handlers.check_stop) work_handlers.check_stop();
}
inline bool work_is_urgent() { return work_handlers.is_urgent && work_handlers.is_urgent(); }
inline void report_work(const char* text) {
    if (work_handlers.report) work_handlers.report(text);
}

}  // namespace nn
