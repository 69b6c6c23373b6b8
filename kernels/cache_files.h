// Files in the user's cache, which other processes may read and write at the same time, and which
// may have been replaced by anything.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace nn {

// The bytes of a regular file of at most 256 MB, after following links; nothing of any other: a
// pipe would be waited for, and a device may have no end.
std::optional<std::string> read_regular(const std::filesystem::path& path);

// Whether a file can be written there: it is a regular one, or there is none.
bool is_regular_or_absent(const std::filesystem::path& path);

// Called while a lock is waited for, with its file and the seconds so far: false gives up. nullptr:
// the wait has ended. The engine sets it before other threads start.
inline bool (*on_wait_for_lock)(const char* path, double seconds) = nullptr;

// While it exists, no other process has one for this file. A process that is stopped while it has
// the lock would block all others of its user, so the wait ends after `most` seconds: whoever locks
// these files loses only time or a measurement without the lock. After one such wait, this process
// waits for no lock any more. "": no file.
class FileLock {
public:
    explicit FileLock(const std::filesystem::path& path, double most = 60);
    ~FileLock();
    FileLock(const FileLock&) = delete;

private:
    const int file_;
};

}  // namespace nn
