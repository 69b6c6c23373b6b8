// A new folder for kept files (base/kept_file.h), while it exists.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>

#include "engine/base/kept_file.h"

namespace nn::engine_test {

struct KeptFolder {
    KeptFolder()
        : path(std::filesystem::temp_directory_path() /
               ("nnlua-kept-" + std::to_string(getpid()))) {
        std::filesystem::remove_all(path);
        keep_files_in(path, "1");
    }
    ~KeptFolder() {
        keep_files_in("", "");
        std::filesystem::remove_all(path);
    }
    const std::filesystem::path path;
};

}  // namespace nn::engine_test
