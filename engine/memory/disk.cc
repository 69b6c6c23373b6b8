#include "engine/memory/disk.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"

namespace nn {
namespace {

// The kernel transfers at most 2 GB per call.
constexpr int64_t max_call = int64_t(1) << 30;

}  // namespace

static bool make_folder(const std::string& folder) {  // returns whether it was missing
    namespace fs = std::filesystem;
    if (mkdir(folder.c_str(), 0755) == 0) return true;
    const int error = errno;
    std::error_code ignored;
    if (fs::exists(folder, ignored)) return false;
    const fs::path path = fs::absolute(folder).lexically_normal();
    const fs::path parent = (path.has_filename() ? path : path.parent_path()).parent_path();
    const bool missing = error == ENOENT && !fs::exists(parent, ignored);
    fail("the disk folder '%s' cannot be created: %s%s; name another folder", folder.c_str(),
         missing ? "there is no folder " : std::strerror(error), missing ? parent.c_str() : "");
}

void prepare_disk_folder(const std::string& folder, bool in_ram) {
    const bool made = make_folder(folder);
    struct statfs system;
    if (in_ram || statfs(folder.c_str(), &system) != 0) return;  // Disk reports the error
    const bool tmpfs = system.f_type == TMPFS_MAGIC;
    if (!tmpfs && system.f_type != RAMFS_MAGIC) return;
    if (made) rmdir(folder.c_str());
    fail(
        "the disk folder '%s' is in RAM (%s) and saves none; name a folder on a disk, such as "
        "/var/tmp, or allow this one with memory.disk_in_ram=true",
        folder.c_str(), tmpfs ? "tmpfs" : "ramfs");
}

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

Disk::Disk(const Options& options) : options_(options), fd_(open_file()) {
    try {
        queue_ = std::make_unique<TransferQueue>(
            TransferQueue::Options{"nnlua disk", options_.threads, options_.bytes_per_second},
            [this](const Transfer& transfer) { return carry_out(transfer); });
    } catch (...) {
        close(fd_);
        throw;
    }
}

Disk::~Disk() {
    queue_.reset();
    close(fd_);
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
                Transfer::Done done) {
    add({false, offset, disk_bytes(bytes), static_cast<char*>(to), order, std::move(what),
         std::move(done)});
}

void Disk::write(int64_t offset, const void* from, int64_t bytes, uint64_t order, TransferName what,
                 Transfer::Done done) {
    add({true, offset, disk_bytes(bytes), const_cast<char*>(static_cast<const char*>(from)), order,
         std::move(what), std::move(done)});
}

void Disk::add(Transfer transfer) {
    if (queue_->is_in_fork())
        return transfer.done(problem(transfer, "this process is a fork of the one that uses it"));
    queue_->add(std::move(transfer));
}

// A transfer that ends early is continued: this is legal, for instance after a signal. It fails if
// no bytes are transferred, so it never ends with fewer bytes than it should have.
std::string Disk::carry_out(const Transfer& t) {
    for (int64_t done = 0; done < t.bytes;) {
        const bool direct = direct_;
        const int64_t n = transfer_some(t, done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && direct) {  // the file system has another block size
            fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_DIRECT);
            direct_ = false;  // from now on EINVAL is an error, also to other threads
            continue;
        }
        if (n < 0) return problem(t, std::strerror(errno));
        if (n == 0)
            return problem(t, format("only %lld of %lld bytes were transferred", (long long)done,
                                     (long long)t.bytes));
        done += n;
    }
    return "";
}

// One call of the system, from byte `done` on: the bytes that it transfers, or -1 and errno.
int64_t Disk::transfer_some(const Transfer& t, int64_t done) {
    auto count = size_t(std::min(t.bytes - done, max_call));
    const DiskFault fault = faults_.next(t.writes ? DiskCall::write : DiskCall::read);
    char* const at = t.memory + done;
    const off_t offset = t.place + done;
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
