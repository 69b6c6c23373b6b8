#include "engine/base/kept_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

namespace nn {
namespace {

namespace fs = std::filesystem;

struct KeptFiles {
    fs::path folder;
    std::string version;
};
KeptFiles& kept_files() {
    static KeptFiles instance;
    return instance;
}

// FNV-1a (Fowler, Noll, Vo).
uint64_t hash_of(const std::string& bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    return hash;
}

std::string first_line(const std::string& title) {
    return "nnlua " + kept_files().version + " " + title;
}

}  // namespace

void keep_files_in(const std::string& folder, const std::string& version) {
    kept_files() = {folder, version};
}

fs::path kept_path(const std::string& name) {
    const fs::path& folder = kept_files().folder;
    return folder.empty() ? fs::path() : folder / name;
}

std::optional<std::string> read_kept(const fs::path& path, const std::string& title) {
    std::ifstream file(path, std::ios::binary);
    std::string line, hash;
    if (!std::getline(file, line) || line != first_line(title) || !std::getline(file, hash))
        return {};
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (hash != std::to_string(hash_of(bytes))) return {};
    return bytes;
}

void write_kept(const fs::path& path, const std::string& title, const std::string& bytes) {
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    const fs::path part = path.native() + "." + std::to_string(getpid());
    std::ofstream file(part, std::ios::binary);
    file << first_line(title) << '\n' << hash_of(bytes) << '\n' << bytes;
    file.close();
    if (file) fs::rename(part, path, ignored);
    if (!file || ignored) fs::remove(part, ignored);
}

KeptLock::KeptLock(const std::string& name) {
    const fs::path path = kept_path(name + ".lock");
    if (path.empty()) return;
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
}

KeptLock::~KeptLock() {
    if (file_ >= 0) close(file_);
}

}  // namespace nn
