// The folder for what later starts of the program can use again, in the user's cache.
#pragma once
#include <cstdlib>
#include <string>

namespace nn {

inline std::string value_or(const char* name, const std::string& otherwise) {
    const char* value = std::getenv(name);
    return value && *value ? value : otherwise;
}

// $XDG_CACHE_HOME/nnlua or $HOME/.cache/nnlua; "" without either. It may not exist.
inline std::string user_cache() {
    const std::string home = value_or("HOME", ""),
                      cache = value_or("XDG_CACHE_HOME", home.empty() ? "" : home + "/.cache");
    return cache.empty() ? "" : cache + "/nnlua";
}

}  // namespace nn
