#include "kernels/kept_choices.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "kernels/cache_files.h"

namespace nn {
namespace {

namespace fs = std::filesystem;

fs::path file_for(const std::string& title) {
    const fs::path folder = cache_folder();
    char name[40];
    std::snprintf(name, sizeof name, "choices-%016zx", std::hash<std::string>()(title));
    return folder.empty() || title.empty() ? fs::path() : folder / name;
}

}  // namespace

fs::path cache_folder() {
    const auto value_of = [](const char* variable) {
        const char* const value = std::getenv(variable);
        return std::string(value ? value : "");
    };
    const std::string cache = value_of("XDG_CACHE_HOME"), home = value_of("HOME");
    if (cache.empty() && home.empty()) return {};
    return fs::path(cache.empty() ? home + "/.cache" : cache) / "nnlua";
}

KeptChoices::KeptChoices(const std::string& title) : title_(title), path_(file_for(title)) {
    std::error_code ignored;
    if (!path_.empty()) fs::create_directories(path_.parent_path(), ignored);
    read();
}

// A line that is not "NAME NUMBER", such as one that a full disk cut off, counts as missing.
void KeptChoices::read() {
    std::istringstream file(read_regular(path_).value_or(""));
    std::string line, name, rest;
    if (!std::getline(file, line) || line != title_) return;
    while (std::getline(file, line) && !file.eof()) {
        std::istringstream fields(line);
        int number = -1;
        if (fields >> name >> number && !(fields >> rest) && number >= 0)
            choices_.emplace(name, number);
    }
}

int KeptChoices::find(const std::string& name, const std::function<int()>& measure) {
    const std::lock_guard lock(mutex_);
    if (const auto known = choices_.find(name); known != choices_.end()) return known->second;
    const FileLock file_lock(path_);
    read();  // another process may have chosen meanwhile
    if (const auto known = choices_.find(name); known != choices_.end()) return known->second;
    const int number = measure();
    if (number < 0) return number;
    choices_.emplace(name, number);
    if (path_.empty() || !is_regular_or_absent(path_)) return number;
    const std::string text = read_regular(path_).value_or("");
    const bool is_new = text.rfind(title_ + '\n', 0) != 0;
    std::ofstream file(path_, is_new ? std::ios::trunc : std::ios::app);
    if (is_new) file << title_ << '\n';
    if (!is_new && text.back() != '\n') file << " (cut off)\n";  // a line that stays invalid
    file << name << ' ' << number << '\n';
    return number;
}

std::map<std::string, int> KeptChoices::all() {
    const std::lock_guard lock(mutex_);
    return choices_;
}

}  // namespace nn
