#include "engine/base/kept_numbers.h"

#include <chrono>
#include <functional>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/kept_file.h"

namespace nn {
namespace {

double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

// Other conditions have a file of their own, so that neither replaces the other.
KeptNumbers::KeptNumbers(const std::string& kind, const std::string& conditions, double hours)
    : title_(kind + " 1, " + conditions),
      path_(kept_path(format("%s-%016zx", kind.c_str(), std::hash<std::string>()(title_)))) {
    std::istringstream lines(read_kept(path_, title_).value_or(""));
    const double now = seconds_since_1970();
    Number number;
    std::string name;
    while (lines >> number.value >> number.measured && std::getline(lines >> std::ws, name))
        if (number.measured <= now && now < number.measured + 3600 * hours) numbers_[name] = number;
}

std::optional<double> KeptNumbers::find(const std::string& name) const {
    const auto at = numbers_.find(name);
    return at == numbers_.end() ? std::nullopt : std::optional(at->second.value);
}

void KeptNumbers::keep(const std::string& name, double number) {
    numbers_[name] = {number, seconds_since_1970()};
}

void KeptNumbers::save() const {
    std::ostringstream lines;
    lines.precision(17);
    for (const auto& [name, number] : numbers_)
        lines << number.value << ' ' << number.measured << ' ' << name << '\n';
    if (!path_.empty()) write_kept(path_, title_, lines.str());
}

}  // namespace nn
