// Threads that carry out transfers between two tiers of memory. Of the transfers that wait, the one
// with the lowest order is next.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace nn {

// What a transfer moves: text for errors, kind (TileKind) for profiles.
struct TransferName {
    std::string text;
    uint8_t kind;
    TransferName(std::string t, uint8_t k = 0) : text(std::move(t)), kind(k) {}
    TransferName(const char* t) : text(t), kind(0) {}
};

struct Transfer {
    using Done = std::function<void(const std::string& error)>;  // "" for success
    bool writes;                                                 // to the lower tier
    int64_t place, bytes;                                        // place: there
    char* memory;
    uint64_t order;
    TransferName what;
    Done done;
};

struct TransferTotals {
    int64_t read = 0, written = 0;  // bytes
    double busy = 0;                // seconds in which at least one transfer was under way
};

class TransferQueue {
public:
    struct Options {
        const char* threads_name;
        int threads = 1;              // of each link
        double bytes_per_second = 0;  // of each link at most; 0: no limit
        bool two_links = false;       // one for reads and one for writes, or one for both
        bool is_disk = true;          // for the log of transfers
    };
    // Called on the threads; returns an error, or "".
    using CarryOut = std::function<std::string(const Transfer&)>;

    TransferQueue(const Options& options, CarryOut carry_out);  // throws Error
    ~TransferQueue();                                           // waits for transfers
    TransferQueue(const TransferQueue&) = delete;

    // `done` is called on a thread of this class, which it must not block. Any thread.
    void add(Transfer transfer);
    TransferTotals totals() const;
    // Whether this process was forked from the one that has the threads.
    bool is_in_fork() const;

private:
    struct Waiting {
        Transfer transfer;
        uint64_t number;
        double added, queued;  // seconds; microseconds of now_us()
    };
    struct Later {
        bool operator()(const Waiting& a, const Waiting& b) const {
            return a.transfer.order != b.transfer.order ? a.transfer.order > b.transfer.order
                                                        : a.number > b.number;
        }
    };
    struct Link {
        std::condition_variable changed;
        std::priority_queue<Waiting, std::vector<Waiting>, Later> waiting;
        double turn_end = 0;
    };
    Link& link_of(const Transfer& transfer) const;
    void end_threads();
    void work(Link& link);  // a thread
    std::string carry_out(const Waiting& next, double end) const;
    double end_of_turn(Link& link, const Waiting& next) const;

    const Options options_;
    const CarryOut carry_out_;
    const int process_;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Link>> links_;
    uint64_t transfers_ = 0;
    int under_way_ = 0;
    double busy_since_ = 0;
    TransferTotals totals_;
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace nn
