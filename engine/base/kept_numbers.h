// Numbers that were measured on this machine, each with a name, which later starts use for a while.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace nn {

class KeptNumbers {
public:
    // Reads the numbers of this kind that are not too old. conditions: all on which they depend, as
    // one line.
    KeptNumbers(const std::string& kind, const std::string& conditions, double hours = 24);
    std::optional<double> find(const std::string& name) const;
    void keep(const std::string& name, double number);
    void forget() { numbers_.clear(); }
    void save() const;  // in a file (base/kept_file.h)

private:
    struct Number {
        double value = 0, measured = 0;  // in seconds since 1970
    };
    const std::string title_;
    const std::filesystem::path path_;
    std::map<std::string, Number> numbers_;  // names have no line ends
};

}  // namespace nn
