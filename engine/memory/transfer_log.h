// The records of a profile about transfers between tiers of memory. The threads of the stores write
// them; profile/links.h evaluates them.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace nn {

// Times are microseconds of now_us().
struct TransferRecord {
    bool is_disk;               // between memory and the disk; else between a GPU and RAM
    bool writes;                // to the disk, or to RAM
    uint8_t kind;               // TileKind
    int64_t bytes;              // that the store transfers
    double queued, start, end;  // all earlier tasks on its memory were done; it began
};

class TransferLog {
public:
    void begin(size_t limit);  // discards earlier records
    // Ends the log. cut: when the first record beyond the limit was dropped; 0: none was.
    std::vector<TransferRecord> end(double* cut);
    bool on() const { return on_.load(std::memory_order_relaxed); }
    void add(const TransferRecord& record);  // any thread

private:
    std::atomic<bool> on_{false};
    std::mutex mutex_;
    std::vector<TransferRecord> records_;
    size_t limit_ = 0;
    double cut_ = 0;
};
TransferLog& transfer_log();

}  // namespace nn
