#include "engine/memory/disk_checks.h"

#include <libdeflate.h>

#include <cstdlib>
#include <cstring>

namespace nn {

static bool is_wanted() {
    const char* const text = std::getenv("NNLUA_CHECK_DISK");
    return text && *text && std::strcmp(text, "0") != 0;
}

DiskChecks::DiskChecks() : on_(is_wanted()) {}

void DiskChecks::written(int64_t offset, const void* data, int64_t bytes) {
    const uint32_t crc = libdeflate_crc32(0, data, size_t(bytes));
    std::lock_guard lock(mutex_);
    sums_[offset] = {bytes, crc};
}

bool DiskChecks::is_as_written(int64_t offset, const void* data, int64_t bytes) {
    Sum expected;
    {
        std::lock_guard lock(mutex_);
        const auto found = sums_.find(offset);
        if (found == sums_.end() || found->second.bytes != bytes) return true;
        expected = found->second;
    }
    return libdeflate_crc32(0, data, size_t(bytes)) == expected.crc;
}

}  // namespace nn
