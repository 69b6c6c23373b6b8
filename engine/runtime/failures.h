// Failed tasks and what depends on them. A task that needs the result of a failed task is skipped,
// and its results fail too; a skipped task that changes a tile in place leaves the old value. So an
// error in the forward pass reaches no parameter. On any thread.
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
// Marks the results of failed tasks as failed values of their tiles. Call it when no task is left.
void forget_failed_values();

}  // namespace nn
