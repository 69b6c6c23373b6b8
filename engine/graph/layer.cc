#include "engine/graph/layer.h"

#include <algorithm>
#include <cctype>

namespace nn {

std::string block_of(std::string_view layer) {
    for (size_t begin = 0; begin < layer.size();) {
        const size_t end = std::min(layer.find('.', begin), layer.size());
        const std::string_view word = layer.substr(begin, end - begin);
        const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
        if (!word.empty() && std::all_of(word.begin(), word.end(), is_digit))
            return std::string(layer.substr(0, end));
        begin = end + 1;
    }
    return std::string(layer);
}

}  // namespace nn
