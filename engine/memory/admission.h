// Decides whether tensors fit into host memory, and raises the error if not. Tiles count from their
// creation, even before they are written. Main thread only, except budget().
#pragma once
#include <cstdint>
#include <string>

namespace nn {

int64_t budget();                // bytes that tiles may take; default_budget() unless set
void set_budget(int64_t bytes);  // 0: default_budget(), measured again
int64_t admitted_bytes();        // of all tiles that exist

bool fits(int64_t bytes);  // whether so many more are within the budget
[[noreturn]] void refuse_admission(int64_t bytes, const std::string& what);  // throws OutOfMemory
void admit(int64_t bytes, const char* what);  // counts them, or throws OutOfMemory
void release_admission(int64_t bytes);

}  // namespace nn
