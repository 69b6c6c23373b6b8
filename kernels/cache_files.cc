#include "kernels/cache_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

namespace nn {
namespace {

namespace fs = std::filesystem;

constexpr off_t most_bytes = 256 << 20;
std::atomic<bool> waits_no_more{false};
constexpr auto pause = std::chrono::milliseconds(20);  // between two attempts to lock

int open_lock(const fs::path& path) {
    if (path.empty()) return -1;
    return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
}

// Other errors: the file system does not support locks.
bool is_busy(int error) { return error == EWOULDBLOCK || error == EINTR; }

std::string read_all(int file, size_t bytes) {
    std::string out(bytes, '\0');
    size_t at = 0;
    while (at < bytes) {
        const ssize_t got = read(file, out.data() + at, bytes - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;  // it has become shorter
        at += size_t(got);
    }
    out.resize(at);
    return out;
}

}  // namespace

std::optional<std::string> read_regular(const fs::path& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return {};
    struct stat status;
    std::optional<std::string> out;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= most_bytes)
        out = read_all(file, size_t(status.st_size));
    close(file);
    return out;
}

bool is_regular_or_absent(const fs::path& path) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    return status.type() == fs::file_type::regular || status.type() == fs::file_type::not_found;
}

FileLock::FileLock(const fs::path& path, double most) : file_(open_lock(path)) {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    const auto must_wait = [&] { return flock(file_, LOCK_EX | LOCK_NB) != 0 && is_busy(errno); };
    if (file_ < 0 || !must_wait() || waits_no_more) return;
    double seconds = 0;
    do {
        if (on_wait_for_lock && !on_wait_for_lock(path.c_str(), seconds)) break;
        std::this_thread::sleep_for(pause);
        seconds = std::chrono::duration<double>(clock::now() - begin).count();
    } while (seconds < most && must_wait());
    if (seconds >= most) waits_no_more = true;
    if (on_wait_for_lock) on_wait_for_lock(nullptr, seconds);
}

FileLock::~FileLock() {
    if (file_ >= 0) close(file_);
}

}  // namespace nn
