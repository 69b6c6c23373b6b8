// Temporary files, locks and their folders, which go when the process ends, also when it ends at
// once: after a second signal, when a step is given up, when another rank fails. Only kill -9 and a
// crash leave them.
#pragma once
#include <string>

namespace nn::exit_files {

void add(const std::string& path);  // a file or a folder; it need not exist yet
// The path stays. Comes before a file is renamed: once the files are being removed, this does not
// return, so no incomplete file or folder gets its final name.
void drop(const std::string& path);
// The one that was added last goes first. A folder with other files stays.
void remove_all();
// remove_all(), then _exit(code); signal handlers may call it.
[[noreturn]] void end_process(int code);

}  // namespace nn::exit_files
