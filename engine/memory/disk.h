// The disk as a tier of memory: extents of one unnamed file, read and written by threads of its
// own. The file has no name, so nothing remains of it when the process ends in whatever way.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/memory/disk_faults.h"
#include "engine/memory/store.h"

namespace nn {

// Extents begin at multiples of this and have multiples of it as sizes, like the memory that they
// are read into and written from: transfers bypass the page cache if the file system allows it.
constexpr int64_t disk_block = 4096;
inline int64_t disk_bytes(int64_t bytes) {
    return (bytes + disk_block - 1) / disk_block * disk_block;
}

// Creates a missing folder, but not its parent. Refuses a folder in RAM (tmpfs, ramfs) unless
// in_ram. Throws Error.
void prepare_disk_folder(const std::string& folder, bool in_ram);

class Disk : public Store {
public:
    // One thread reaches the rate of a virtual disk; the others keep small transfers from waiting
    // behind large ones. Drives with several queues need them.
    static constexpr int default_threads = 4;
    struct Options {
        std::string folder;
        double bytes_per_second = 0;  // at most, both directions together; 0: no limit
        int threads = default_threads;
    };

    explicit Disk(const Options& options);  // throws Error
    ~Disk() override;                       // waits for transfers
    Disk(const Disk&) = delete;

    // Reserves an extent, which reads as zeros until it is written if it was never used before. A
    // file system that cannot reserve space gives a file with holes; a full disk is then an error
    // of a write.
    int64_t allocate(int64_t bytes, const std::string& what) override;
    void release(int64_t offset, int64_t bytes) override;
    int64_t allocated_bytes() const override;  // of all extents

    void read(int64_t offset, void* to, int64_t bytes, uint64_t order, TransferName what,
              Transfer::Done done) override;
    void write(int64_t offset, const void* from, int64_t bytes, uint64_t order, TransferName what,
               Transfer::Done done) override;
    TransferTotals totals() const override { return queue_->totals(); }

private:
    int open_file();  // returns a file descriptor; throws Error
    int open_unnamed(int flags);
    int reserve(int64_t bytes);  // at the end of the file; returns an errno
    void add(Transfer transfer);
    std::string carry_out(const Transfer& transfer);
    int64_t transfer_some(const Transfer& transfer, int64_t done);
    std::string problem(const Transfer& transfer, const std::string& reason) const;

    const Options options_;
    DiskFaults faults_;
    std::atomic<bool> direct_{true};  // transfers bypass the page cache
    int fd_ = -1;
    mutable std::mutex mutex_;
    std::map<int64_t, std::vector<int64_t>> free_;  // extents by size
    int64_t end_ = 0, allocated_ = 0;
    std::unique_ptr<TransferQueue> queue_;
};

}  // namespace nn
