// Reads and applies SentencePiece's map of characters.
#include "engine/text/charsmap.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/text/forms.h"
#include "engine/text/utf8.h"

namespace nn::text {

CharsMap::CharsMap(std::string_view blob) {
    uint32_t size = 0;
    if (blob.size() >= 4) std::memcpy(&size, blob.data(), 4);
    if (size == 0 || size % 4 != 0 || size > blob.size() - 4)
        fail("precompiled_charsmap is damaged: its trie has %u bytes of %zu", size, blob.size());
    units.resize(size / 4);
    std::memcpy(units.data(), blob.data() + 4, size);
    replacements = blob.substr(4 + size);
    replacements += '\0';
}

template <class F> void CharsMap::each_entry(std::string_view text, F each) const {
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); };
    size_t node = 0, length = 0;
    uint32_t unit = units[0];
    node ^= offset(unit);
    for (const char byte : text) {
        if (byte == 0) return;
        ++length;
        node ^= uint8_t(byte);
        if (node >= units.size()) return;
        unit = units[node];
        if ((unit & 0x800000FF) != uint8_t(byte)) return;  // another label
        node ^= offset(unit);
        if (unit >> 8 & 1) {  // an entry ends here
            if (node >= units.size()) return;
            const size_t at = units[node] & 0x7FFFFFFF;
            if (at >= replacements.size() || !each(Entry{length, replacements.c_str() + at}))
                return;
        }
    }
}

CharsMap::Entry CharsMap::longest(std::string_view text) const {
    Entry found;
    each_entry(text, [&](Entry entry) {
        found = entry;
        return true;
    });
    return found;
}

void CharsMap::apply(std::string_view text, std::string& out) const {
    const auto shortest = [&](std::string_view part) {
        std::string_view found;
        each_entry(part, [&](Entry entry) {
            found = entry.replacement;
            return false;
        });
        return found;
    };
    for (size_t at = 0; at < text.size();) {
        const std::string_view cluster = text.substr(at, cluster_length(text.substr(at)));
        at += cluster.size();
        const std::string_view whole = cluster.size() < 6 ? shortest(cluster) : std::string_view();
        if (whole.data()) {
            out += whole;
            continue;
        }
        each_character(cluster, [&](char32_t, std::string_view character) {
            const std::string_view single = shortest(character);
            out += single.data() ? single : character;
        });
    }
}

}  // namespace nn::text
