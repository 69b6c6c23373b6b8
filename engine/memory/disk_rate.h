// The rate of a disk, measured, for plans.
#pragma once
#include <string>

#include "engine/memory/disk.h"

namespace nn {

struct DiskLoad {
    double written = 0.5;              // the share of bytes that are written; the rest is read
    int64_t piece = int64_t(4) << 20;  // bytes of a transfer
    int threads = Disk::default_threads;
};
// Bytes per second of transfers at scattered places of an unnamed file in the folder, both
// directions at once. Takes about a second, 64 MB of RAM and at most 512 MB of the disk. Each load
// of a folder is measured once per process. Throws Error. Main thread only.
double measure_disk(const std::string& folder, const DiskLoad& load = {});

}  // namespace nn
