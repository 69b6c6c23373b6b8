#include "bindings/progress.h"

#include <unistd.h>

#include <cstdio>

#include "engine/base/clock.h"
#include "engine/base/progress.h"
#include "engine/machine/ranks.h"

namespace nn {
namespace {

constexpr double most_pause = 2;  // seconds; later reports belong to other work
double last = 0, due = 0;         // times of the last report, and of the next line
bool working = false, shown = false;

void report(const char* text) {
    const double now = now_seconds();
    const bool on_terminal = isatty(STDERR_FILENO);
    if (!text) {
        if (shown && on_terminal) std::fputs("\r\33[K", stderr);
        if (working) last = now;
        working = shown = false;
        return;
    }
    working = true;
    const double quiet = on_terminal ? 1 : 10, interval = on_terminal ? 0.2 : 10;  // seconds
    if (now > last + most_pause) due = now + quiet;
    last = now;
    if (now < due) return;
    due = now + interval;
    shown = true;
    std::fprintf(stderr, on_terminal ? "\r%s\33[K" : "%s\n", text);
}

}  // namespace

void show_progress() {
    if (ranks().rank == 0) work_reporter = report;
}

}  // namespace nn
