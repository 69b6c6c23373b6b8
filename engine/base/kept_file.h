// Files in the user's cache with what later starts can use again: plans, measurements.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "kernels/cache_files.h"

namespace nn {

// From now on, files are kept in this folder, for this version of the program. "": none are kept.
void keep_files_in(const std::string& folder, const std::string& version);
// A path relative to that folder; empty if no files are kept.
std::filesystem::path kept_path(const std::string& name);

// The bytes that an earlier start wrote with the same title. A file that is damaged, or of another
// version or title, counts as missing. The title is one line.
std::optional<std::string> read_kept(const std::filesystem::path& path, const std::string& title);
// Replaces the file at once, so that other processes read all of it. Without a writable folder, or
// where something other than a regular file has that name, nothing is kept.
void write_kept(const std::filesystem::path& path, const std::string& title,
                const std::string& bytes);

// The file for a FileLock of this name; empty if no files are kept.
std::filesystem::path lock_path(const std::string& name);

}  // namespace nn
