#include "engine/memory/disk_rate.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/interrupts.h"

namespace nn {
namespace {

constexpr int64_t memory = int64_t(64) << 20, file = int64_t(512) << 20;
constexpr double fill_seconds = 0.5, seconds = 0.5;

// Keeps transfers of a disk in flight.
class Measurement {
public:
    Measurement(const std::string& folder, const DiskLoad& load)
        : load_(load),
          blocks_(int(std::clamp<int64_t>(memory / load.piece, 1, 2 * load.threads))),
          memory_(std::aligned_alloc(disk_block, size_t(blocks_ * load.piece)), std::free),
          disk_({folder, 0, load.threads}) {
        if (!memory_) throw OutOfMemory("out of memory: no buffers to measure the disk");
        std::fill_n(static_cast<char*>(memory_.get()), blocks_ * load.piece, 1);
        for (int i = 0; i < blocks_; ++i) free_.push_back(i);
    }

    double rate() {
        fill();
        uint32_t random = 1;
        double owed = 0;  // transfers to write
        const double begin = now_seconds();
        int64_t transfers = 0;
        for (; now_seconds() - begin < seconds; ++transfers) {
            random = random * 1664525 + 1013904223;
            owed += load_.written;
            start(extents_[(random >> 8) % extents_.size()], owed >= 1);
            if (owed >= 1) owed -= 1;
        }
        wait_until(blocks_);
        return double(transfers * load_.piece) / (now_seconds() - begin);
    }

private:
    // Reads of places that were never written would not reach the disk.
    void fill() {
        const double begin = now_seconds();
        const int64_t most = std::max<int64_t>(file / load_.piece, 1);
        while (int64_t(extents_.size()) < most &&
               (extents_.empty() || now_seconds() - begin < fill_seconds)) {
            extents_.push_back(disk_.allocate(load_.piece, "a measurement"));
            start(extents_.back(), true);
        }
        wait_until(blocks_);
    }

    void start(int64_t extent, bool writes) {
        check_interrupt();
        const int block = wait_until(1);
        char* const at = static_cast<char*>(memory_.get()) + block * load_.piece;
        const auto done = [this, block](const std::string& error) {
            const std::lock_guard lock(mutex_);
            free_.push_back(block);
            if (!error.empty()) error_ = error;
            changed_.notify_one();
        };
        if (writes)
            disk_.write(extent, at, load_.piece, 0, "a measurement", done);
        else
            disk_.read(extent, at, load_.piece, 0, "a measurement", done);
    }

    // Waits for free blocks; takes one if it waits for one.
    int wait_until(int count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return int(free_.size()) >= count; });
        if (!error_.empty()) throw Error(error_);
        const int block = free_.back();
        if (count == 1) free_.pop_back();
        return block;
    }

    const DiskLoad load_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string error_;
    std::vector<int> free_;  // blocks of memory
    std::vector<int64_t> extents_;
    const int blocks_;
    const std::unique_ptr<void, decltype(&std::free)> memory_;
    Disk disk_;  // last: its end waits for transfers
};

}  // namespace

double measure_disk(const std::string& folder, const DiskLoad& load) {
    static std::map<std::tuple<std::string, double, int64_t, int>, double> measured;
    if (!(load.written >= 0 && load.written <= 1))
        fail("measure_disk: a share of %g is written; 0 to 1 is possible", load.written);
    if (load.piece < disk_block || load.piece > memory || load.piece % disk_block)
        fail("measure_disk: pieces of %lld bytes; multiples of 4096 up to 64 MiB are possible",
             (long long)load.piece);
    if (load.threads < 1 || load.threads > 64)
        fail("measure_disk: %d threads; 1 to 64 are possible", load.threads);
    double& rate = measured[{folder, load.written, load.piece, load.threads}];
    if (rate == 0) rate = Measurement(folder, load).rate();
    return rate;
}

}  // namespace nn
