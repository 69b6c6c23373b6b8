// Failed tasks. A task that needs the result of a failed task is skipped, and its results fail too.
// A skipped task that changes a tile in place leaves the old value, so an error in the forward pass
// changes no parameter; but the tile fails if a value that the task needs was lost on disk.
// Callable from any thread.
#pragma once
#include <string>

#include "engine/workers/handles.h"

namespace nn {

struct TaskArg;

// For the task that runs on the calling worker:
bool needs_failed_value();
void note_skipped(const TaskArg& arg);
void note_result(const TaskArg& arg, const std::string& error);  // error: "" for success

// For a transfer between memory and disk, whose result is in this handle:
void note_transfer(StarpuHandle to, const std::string& error);   // error: "" for success
void note_transfer_skipped(StarpuHandle from, StarpuHandle to);  // because `from` has failed

bool has_failed_value(StarpuHandle handle);
int64_t failed_tasks();    // since the start of the process, with skipped ones and transfers
bool has_error();          // whether a failed task is not reported yet
std::string take_error();  // the first error, which caused the others
void mark_failed_tiles();  // those with failed results; call it when all tasks are done

}  // namespace nn
