#include "engine/memory/disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/memory/stalls.h"
#include "engine/memory/transfer_log.h"

namespace nn {
namespace {

// The kernel transfers at most 2 GB per call.
constexpr int64_t max_call = int64_t(1) << 30;

}  // namespace

int Disk::open_unnamed(int flags) {
    const DiskFault fault = faults_.next(DiskCall::open);
    const auto* const folder = options_.folder.c_str();
    const int fd = fault.kind == DiskFault::error
                       ? -1
                       : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL | flags, 0600);
    if (fault.kind == DiskFault::error) errno = fault.number;
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
    // The file system has no unnamed files.
    std::string path = options_.folder + "/nnlua-XXXXXX";
    const int named = mkostemp(path.data(), O_CLOEXEC | flags);
    if (named >= 0) unlink(path.c_str());
    return named;
}

int Disk::open_file() {
    int fd = open_unnamed(O_DIRECT);
    if (fd < 0 && errno == EINVAL) {
        direct_ = false;
        fd = open_unnamed(0);
    }
    if (fd < 0)
        fail("the disk folder '%s' cannot be used: %s; name a folder in which files can be written",
             options_.folder.c_str(), std::strerror(errno));
    return fd;
}

Disk::Disk(const Options& options) : options_(options), process_(getpid()), fd_(open_file()) {
    const SignalsBlocked in_the_threads;
    try {
        for (int i = 0; i < options_.threads; ++i) {
            threads_.push_back(new_thread([this] { work(); }));
            pthread_setname_np(threads_.back().native_handle(), "nnlua disk");
        }
    } catch (...) {
        end_threads();
        close(fd_);
        throw;
    }
}

Disk::~Disk() {
    if (getpid() == process_) {
        end_threads();
    } else {
        for (std::thread& thread : threads_) thread.detach();
        static_cast<void>(changed_.release());  // its end would wait for these threads
    }
    close(fd_);
}

void Disk::end_threads() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_->notify_all();
    for (std::thread& thread : threads_) thread.join();
}

int Disk::reserve(int64_t bytes) {
    const DiskFault fault = faults_.next(DiskCall::reserve);
    int error = fault.kind == DiskFault::error ? fault.number : EINTR;
    while (error == EINTR) error = fallocate(fd_, 0, end_, bytes) == 0 ? 0 : errno;
    if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS)
        error = ftruncate(fd_, end_ + bytes) == 0 ? 0 : errno;
    return error;
}

int64_t Disk::allocate(int64_t bytes, const std::string& what) {
    bytes = disk_bytes(bytes);
    std::lock_guard lock(mutex_);
    auto& same_size = free_[bytes];
    if (!same_size.empty()) {
        const int64_t offset = same_size.back();
        same_size.pop_back();
        allocated_ += bytes;
        return offset;
    }
    if (const int error = reserve(bytes))
        fail("%s cannot get space in the disk folder '%s' after %s: %s%s", what.c_str(),
             options_.folder.c_str(), human_bytes(double(end_)).c_str(), std::strerror(error),
             error == EFBIG ? " (see ulimit -f)" : "");
    allocated_ += bytes;
    return std::exchange(end_, end_ + bytes);
}

void Disk::release(int64_t offset, int64_t bytes) {
    bytes = disk_bytes(bytes);
    std::lock_guard lock(mutex_);
    free_[bytes].push_back(offset);
    allocated_ -= bytes;
}

int64_t Disk::allocated_bytes() const {
    std::lock_guard lock(mutex_);
    return allocated_;
}

void Disk::read(int64_t offset, void* to, int64_t bytes, uint64_t order, TransferName what,
                Done done) {
    add({false, offset, disk_bytes(bytes), static_cast<char*>(to), order, 0, 0, std::move(what),
         std::move(done)});
}

void Disk::write(int64_t offset, const void* from, int64_t bytes, uint64_t order, TransferName what,
                 Done done) {
    add({true, offset, disk_bytes(bytes), const_cast<char*>(static_cast<const char*>(from)), order,
         0, 0, std::move(what), std::move(done)});
}

void Disk::add(Transfer transfer) {
    if (getpid() != process_)
        return transfer.done(problem(transfer, "this process is a fork of the one that uses it"));
    if (options_.bytes_per_second > 0) transfer.added = now_seconds();
    transfer.queued = now_us();
    {
        std::lock_guard lock(mutex_);
        transfer.number = transfers_++;
        waiting_.push(std::move(transfer));
    }
    changed_->notify_one();
}

Disk::Totals Disk::totals() const {
    std::lock_guard lock(mutex_);
    Totals out = totals_;
    if (under_way_) out.busy += now_seconds() - busy_since_;
    return out;
}

void Disk::work() {
    if (options_.bytes_per_second > 0) prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_->wait(lock, [&] { return closing_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        const Transfer transfer = waiting_.top();
        waiting_.pop();
        if (under_way_++ == 0) begin_busy();
        const double end = end_of_turn(transfer);
        lock.unlock();
        const double start = now_us();
        if (has_delays) wait_randomly(1);
        const std::string error = carry_out(transfer);
        if (end > 0)
            std::this_thread::sleep_for(std::chrono::duration<double>(end - now_seconds()));
        if (transfer_log().on())
            transfer_log().add({transfer.writes, transfer.what.kind, transfer.bytes,
                                transfer.queued, start, now_us()});
        lock.lock();
        if (--under_way_ == 0) end_busy();
        (transfer.writes ? totals_.written : totals_.read) += transfer.bytes;
        lock.unlock();
        if (has_delays) wait_randomly(0.5);
        transfer.done(error);
        lock.lock();
    }
}

void Disk::begin_busy() {
    busy_since_ = now_seconds();
    transfers_begin();
}

void Disk::end_busy() {
    totals_.busy += now_seconds() - busy_since_;
    transfers_end();
}

// With a limit on the rate, transfers take turns on a link of that rate. A turn begins when the
// turn before it ends, even if a thread notices this late, so threads that oversleep lose nothing.
double Disk::end_of_turn(const Transfer& transfer) {
    if (options_.bytes_per_second <= 0) return 0;
    turn_end_ =
        std::max(turn_end_, transfer.added) + double(transfer.bytes) / options_.bytes_per_second;
    return turn_end_;
}

// A transfer that ends early is continued: this is legal, for instance after a signal. It fails if
// no bytes are transferred, so it never ends with fewer bytes than it should have.
std::string Disk::carry_out(const Transfer& t) {
    if (checks_.on() && t.writes) checks_.written(t.offset, t.memory, t.bytes);
    for (int64_t done = 0; done < t.bytes;) {
        const bool direct = direct_;
        const int64_t n = transfer_some(t, done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && direct) {  // the file system has another block size
            direct_ = false;
            fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_DIRECT);
            continue;
        }
        if (n < 0) return problem(t, std::strerror(errno));
        if (n == 0)
            return problem(t, format("only %lld of %lld bytes were transferred", (long long)done,
                                     (long long)t.bytes));
        done += n;
    }
    if (checks_.on() && !t.writes && !checks_.is_as_written(t.offset, t.memory, t.bytes))
        return problem(t, "the bytes are not those that were written");
    return "";
}

// One call of the system, from byte `done` on: the bytes that it transfers, or -1 and errno.
int64_t Disk::transfer_some(const Transfer& t, int64_t done) {
    auto count = size_t(std::min(t.bytes - done, max_call));
    const DiskFault fault = faults_.next(t.writes ? DiskCall::write : DiskCall::read);
    char* const at = t.memory + done;
    const off_t offset = t.offset + done;
    switch (fault.kind) {
        case DiskFault::error: errno = fault.number; return -1;
        case DiskFault::zero: return 0;
        case DiskFault::lost: return int64_t(count);
        case DiskFault::part: count = std::max(count / 2, size_t(1)); break;
        default: break;
    }
    const ssize_t n = t.writes ? pwrite(fd_, at, count, offset) : pread(fd_, at, count, offset);
    if (fault.kind == DiskFault::corrupt && !t.writes && n > 0) at[0] ^= 1;
    return n;
}

std::string Disk::problem(const Transfer& transfer, const std::string& reason) const {
    return format("%s cannot be %s the disk folder '%s': %s", transfer.what.text.c_str(),
                  transfer.writes ? "written to" : "read from", options_.folder.c_str(),
                  reason.c_str());
}

}  // namespace nn
