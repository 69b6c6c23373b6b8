#include "engine/memory/admission.h"

#include <atomic>

#include "engine/base/error.h"
#include "engine/machine/memory_limit.h"

namespace nn {
namespace {

std::atomic<int64_t> limit{0};  // 0: not known yet
int64_t admitted = 0;

}  // namespace

int64_t budget() {
    if (limit == 0) set_budget(0);
    return limit;
}

void set_budget(int64_t bytes) { limit = bytes > 0 ? bytes : default_budget(); }
int64_t admitted_bytes() { return admitted; }

bool fits(int64_t bytes) { return admitted + bytes <= budget(); }

void refuse_admission(int64_t bytes, const std::string& what) {
    throw OutOfMemory(
        format("out of memory: %s of %s does not fit; %s of the budget of %s are in use",
               what.c_str(), human_bytes(double(bytes)).c_str(),
               human_bytes(double(admitted)).c_str(), human_bytes(double(budget())).c_str()));
}

void admit(int64_t bytes, const char* what) {
    if (!fits(bytes)) refuse_admission(bytes, what);
    admitted += bytes;
}

void release_admission(int64_t bytes) { admitted -= bytes; }

}  // namespace nn
