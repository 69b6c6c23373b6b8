// Temporary files, locks and folders for them that go when the process ends, also where it ends at
// once: after a second signal, when a step is given up, when another rank fails. Only kill -9 and a
// crash leave them.
#pragma once
#include <string>

namespace nn::exit_files {

void add(const std::string& path);  // a file or a folder; it need not exist yet
// The path stays. A process that ends at once while a thread waits here does not return from this:
// what is renamed after it is complete.
void drop(const std::string& path);
// The last added first. A folder with other files stays.
void remove_all();
// remove_all(), then _exit(code); signal handlers may call it.
[[noreturn]] void end_process(int code);

}  // namespace nn::exit_files
