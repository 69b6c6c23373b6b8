#include "engine/base/kept_file.h"

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <system_error>

#include "engine/base/exit_files.h"
#include "engine/base/interrupts.h"
#include "engine/base/progress.h"

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

// Whether a stop signal has arrived, even one that is blocked while the engine starts.
bool stop_is_requested() {
    sigset_t pending;
    sigpending(&pending);
    const auto is_pending = [&](int signal) { return sigismember(&pending, signal) == 1; };
    return interrupt_requested() || is_pending(SIGINT) || is_pending(SIGTERM) || is_pending(SIGHUP);
}

// Reports the wait on the main thread only. A stop signal ends it.
bool wait_for_lock(const char* path, double seconds) {
    const bool reports = seconds > 1 && gettid() == getpid();
    if (reports && path)
        report_work(format("waiting for another nnlua, which has locked %s", path).c_str());
    else if (reports)
        report_work(nullptr);
    return !stop_is_requested();
}

}  // namespace

void keep_files_in(const std::string& folder, const std::string& version) {
    kept_files() = {folder, version};
    on_wait_for_lock = wait_for_lock;
}

fs::path kept_path(const std::string& name) {
    const fs::path& folder = kept_files().folder;
    return folder.empty() ? fs::path() : folder / name;
}

std::optional<std::string> read_kept(const fs::path& path, const std::string& title) {
    const std::string text = read_regular(path).value_or("");
    const size_t title_end = text.find('\n'), hash_end = text.find('\n', title_end + 1);
    if (title_end == text.npos || hash_end == text.npos) return {};
    if (text.compare(0, title_end, first_line(title)) != 0) return {};
    std::string bytes = text.substr(hash_end + 1);
    if (text.substr(title_end + 1, hash_end - title_end - 1) != std::to_string(hash_of(bytes)))
        return {};
    return bytes;
}

void write_kept(const fs::path& path, const std::string& title, const std::string& bytes) {
    if (!is_regular_or_absent(path)) return;
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    const fs::path part = path.native() + "." + std::to_string(getpid());
    exit_files::add(part);
    std::ofstream file(part, std::ios::binary);
    file << first_line(title) << '\n' << hash_of(bytes) << '\n' << bytes;
    file.close();
    exit_files::drop({part});
    if (file) fs::rename(part, path, ignored);
    if (!file || ignored) fs::remove(part, ignored);
}

fs::path lock_path(const std::string& name) {
    const fs::path path = kept_path(name + ".lock");
    std::error_code ignored;
    if (!path.empty()) fs::create_directories(path.parent_path(), ignored);
    return path;
}

}  // namespace nn
