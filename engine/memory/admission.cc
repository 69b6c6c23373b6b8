#include "engine/memory/admission.h"

#include <algorithm>
#include <atomic>

#include "engine/base/error.h"
#include "engine/machine/host.h"
#include "engine/machine/memory_limit.h"

namespace nn {
namespace {

constexpr int64_t unknown = -1;
std::atomic<int64_t> limit{unknown};
int64_t admitted = 0, handles = 0, on_disk = 0;
bool is_default = false;

int64_t in_records() { return handles * handle_bytes; }
int64_t in_use() { return admitted + in_records(); }

}  // namespace

int64_t budget() {
    if (limit == unknown) set_budget(0);
    return limit;
}

int64_t available(int64_t blocks) {
    return available_memory(host().count(Device::cpu), blocks + in_records());
}

void set_budget(int64_t bytes, int64_t blocks) {
    is_default = bytes <= 0;
    limit = is_default ? available(blocks) + blocks + in_records() : bytes;
}

void forget_default_budget() {
    if (is_default) limit = unknown;
}

void check_room() {
    if (budget() > 0) return;
    const int workers = host().count(Device::cpu);
    throw OutOfMemory(format(
        "out of memory: the limits of this process (ulimit -v, ulimit -d, or its control "
        "group) leave no memory for tensors with %d worker%s; raise the limits%s",
        workers, workers == 1 ? "" : "s", workers == 1 ? "" : ", or start fewer (NNLUA_CPUS)"));
}

void set_disk_capacity(int64_t bytes) { on_disk = bytes; }
int64_t admitted_bytes() { return admitted; }

void count_handle(int change) { handles += change; }

bool fits(int64_t bytes) { return in_use() + bytes <= budget() + on_disk; }

bool fits_with_gpus(int64_t temporaries, int64_t on_gpus, int64_t records) {
    const int64_t room = std::max<int64_t>(0, on_gpus - admitted);
    return fits(std::max<int64_t>(0, temporaries - room) + records);
}

void refuse_admission(int64_t bytes, const std::string& what) {
    check_room();
    throw OutOfMemory(
        format("out of memory: %s of %s does not fit; %s of the budget of %s are in use",
               what.c_str(), human_bytes(double(bytes)).c_str(),
               human_bytes(double(in_use())).c_str(), human_bytes(double(budget())).c_str()));
}

void admit(int64_t bytes, const char* what) {
    if (!fits(bytes)) refuse_admission(bytes, what);
    admitted += bytes;
}

void release_admission(int64_t bytes) { admitted -= bytes; }

}  // namespace nn
