// Checksums of what is on disk, for NNLUA_CHECK_DISK=1: a read that returns other bytes than the
// last write is an error. Without it, only the disk's own checks find such bytes.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>

namespace nn {

class DiskChecks {
public:
    DiskChecks();
    bool on() const { return on_; }
    void written(int64_t offset, const void* data, int64_t bytes);  // before the write begins
    bool is_as_written(int64_t offset, const void* data, int64_t bytes);

private:
    struct Sum {
        int64_t bytes;
        uint32_t crc;
    };
    const bool on_;
    std::mutex mutex_;
    std::map<int64_t, Sum> sums_;  // by offset; transfers of an extent have the same bytes
};

}  // namespace nn
