// Failed tasks and what depends on them. A task that needs a value which a failed task was to give
// is skipped, and its results fail too; a task that was to change a tile in place leaves the value
// that was there. So an error in the forward pass reaches no parameter. On any thread.
#pragma once
#include <string>

#include "engine/graph/task.h"
#include "engine/runtime/handles.h"

namespace nn {

// For the task that runs on the calling worker:
bool needs_failed_value();
void note_skipped(const TaskArg& arg);
void note_result(const TaskArg& arg, const std::string& error);  // error: "" for success

bool has_failed_value(StarpuHandle handle);
bool has_error();          // of a failed task, not reported yet
std::string take_error();  // the first, which is the cause of the others
// Tiles lose the values that failed tasks were to give them. To be called when no task is left.
void forget_failed_values();

}  // namespace nn
