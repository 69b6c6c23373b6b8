// Files in the user's cache with what later starts can use again: plans, measurements.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace nn {

// From now on, files are kept in this folder, for this version of the program. "": none are kept.
void keep_files_in(const std::string& folder, const std::string& version);
// A path relative to that folder; empty if no files are kept.
std::filesystem::path kept_path(const std::string& name);

// The bytes that an earlier start wrote with the same title. A file that is damaged, or of another
// version or title, counts as missing. The title is one line.
std::optional<std::string> read_kept(const std::filesystem::path& path, const std::string& title);
// Replaces the file at once, so that other processes read all of it. Without a writable folder,
// nothing is kept.
void write_kept(const std::filesystem::path& path, const std::string& title,
                const std::string& bytes);

// While it exists, no other process has one of this name. Without a folder for kept files, others
// may.
class KeptLock {
public:
    explicit KeptLock(const std::string& name);
    ~KeptLock();
    KeptLock(const KeptLock&) = delete;

private:
    int file_ = -1;
};

}  // namespace nn
