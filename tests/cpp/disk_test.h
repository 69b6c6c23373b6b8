// What tests of disks share: a folder, blocks of memory, and waiting for transfers.
#pragma once
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "engine/memory/disk.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {

struct Folder {
    const std::string path =
        std::filesystem::temp_directory_path() / ("nnlua-disk-" + std::to_string(getpid()));
    Folder() { std::filesystem::create_directory(path); }
    ~Folder() { std::filesystem::remove_all(path); }
};

using Block = std::unique_ptr<char, decltype(&std::free)>;
inline Block block(int64_t bytes, int fill) {
    Block out(static_cast<char*>(std::aligned_alloc(size_t(disk_block), size_t(bytes))), std::free);
    std::memset(out.get(), fill, size_t(bytes));
    return out;
}

// Counts transfers that are done, and keeps their errors.
struct Waiter {
    std::mutex mutex;
    std::condition_variable changed;
    int done = 0;
    std::string error;
    Transfer::Done note() {
        return [this](const std::string& e) {
            std::lock_guard lock(mutex);
            ++done;
            if (!e.empty()) error = e;
            changed.notify_all();
        };
    }
    void wait(int count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return done >= count; });
    }
};

}  // namespace nn::engine_test
