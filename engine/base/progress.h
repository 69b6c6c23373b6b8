// Reports of long work of the engine outside of tasks, such as planning. Main thread only.
#pragma once

namespace nn {

// Set by whoever shows reports. text: what is being done; nullptr: it has ended.
inline void (*work_reporter)(const char* text) = nullptr;

inline void report_work(const char* text) {
    if (work_reporter) work_reporter(text);
}

}  // namespace nn
