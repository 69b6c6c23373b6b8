// Choices among equivalent ways of computing that depend on a measurement, in a file in the user's
// cache: later starts, and other processes at the same time, choose alike, so that they get the
// same bits.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace nn {

// The folder of the user's caches for nnlua; empty if there is none.
std::filesystem::path cache_folder();

class KeptChoices {
public:
    // title: all that the choices depend on, as one line. Each title has a file of its own; "" has
    // none.
    explicit KeptChoices(const std::string& title);
    // The number kept under this name, which has no spaces; else what measure() returns, which is
    // kept unless it is below 0. Without a writable folder, or where something other than a
    // regular file has the name of the choices' file, only this object keeps it.
    int find(const std::string& name, const std::function<int()>& measure);
    std::map<std::string, int> all();  // that this object knows, by name

private:
    void read();
    const std::string title_;
    const std::filesystem::path path_;
    std::mutex mutex_;
    std::map<std::string, int> choices_;
};

}  // namespace nn
