// Temporary files, lock files and their folders. The process removes them when it ends, even when
// it ends at once: after a second signal, when a step is given up, when another rank fails. Only
// kill -9, SIGQUIT and a crash leave them. A forked process removes none.
#pragma once
#include <string>
#include <vector>

namespace nn::exit_files {

// A file or a folder, which need not exist yet. A relative path is resolved at once.
void add(const std::string& path);
// Takes paths from the list. Call it before the rename: it does not return after end_process() has
// begun, so nothing that is being removed gets its final name.
void drop(const std::vector<std::string>& paths);
// In the reverse order of add(). A folder that is not empty stays. Empties the list.
void remove_all();
// Removes all as well, then calls _exit(code). Signal handlers may call it.
[[noreturn]] void end_process(int code);

}  // namespace nn::exit_files
