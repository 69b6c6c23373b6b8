// Builds the sets of character_set.h.
#include "engine/text/character_set.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/text/unicode.h"

namespace nn::text {

Ranges united(Ranges a, const Ranges& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    Ranges out;
    for (const auto& [first, last] : a) {
        if (out.empty() || first > out.back().second + 1) {
            out.emplace_back(first, last);
        } else {
            out.back().second = std::max(out.back().second, last);
        }
    }
    return out;
}

Ranges complement(const Ranges& a) {
    Ranges out;
    char32_t next = 0;
    for (const auto& [first, last] : a) {
        if (first > next) out.emplace_back(next, first - 1);
        next = last + 1;
    }
    if (next <= invalid) out.emplace_back(next, invalid);
    return out;
}

Ranges intersection(const Ranges& a, const Ranges& b) {
    return complement(united(complement(a), complement(b)));
}

namespace {

template <class C> Ranges ranges_where(C holds) {
    Ranges out;
    for (char32_t code = 0; code <= invalid; ++code) {
        if (!holds(code)) continue;
        if (!out.empty() && out.back().second + 1 == code) {
            ++out.back().second;
        } else {
            out.emplace_back(code, code);
        }
    }
    return out;
}

bool overlaps(const Ranges& ranges, char32_t first, char32_t last) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
        return range.first <= last && range.second >= first;
    });
}

}  // namespace

Ranges ranges_of_categories(uint32_t bits) {
    Ranges out;
    char32_t first = 0;
    for (const auto& [last, category] : unicode().category_runs()) {
        if (bits >> category & 1) out.emplace_back(first, last);
        first = last + 1;
    }
    return united({}, out);
}

// The property Word without joiners; outside brackets, Oniguruma adds the numbers of Latin-1.
Ranges ranges_of_words(bool in_brackets) {
    const Unicode& table = unicode();
    return ranges_where([&](char32_t code) {
        if (code < 256 && table.has(code, numeric)) return code < 128 || !in_brackets;
        return table.has(code, word) && (code & ~1u) != 0x200C;
    });
}

Ranges ranges_of_property(std::string name) {
    for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = char(c + 32);
    const Ranges script = unicode().script(name);
    if (!script.empty() || name.empty()) return script;
    name[0] = char(name[0] - 32);
    return ranges_of_categories(Unicode::category_bits(name));
}

CharacterSet::CharacterSet(const Ranges& ranges) {
    rest = !ranges.empty() && ranges.back().second == invalid;
    if (!ranges.empty()) {
        const char32_t stop = rest ? ranges.back().first : ranges.back().second;
        block_of.resize((stop >> 8) + 1);
    }
    std::map<std::array<uint64_t, 4>, uint16_t> known;
    auto range = ranges.begin();
    for (size_t block = 0; block < block_of.size(); ++block) {
        std::array<uint64_t, 4> bits{};
        const char32_t begin = char32_t(block) << 8;
        while (range != ranges.end() && range->second < begin) ++range;
        for (auto r = range; r != ranges.end() && r->first < begin + 256; ++r) {
            const char32_t last = std::min(r->second, char32_t(begin + 255));
            for (char32_t code = std::max(r->first, begin); code <= last; code = (code | 63) + 1)
                bits[code >> 6 & 3] |=
                    ~uint64_t(0) << (code & 63) &
                    ~uint64_t(0) >> (63 - (std::min(last, char32_t(code | 63)) & 63));
        }
        const auto [entry, is_new] = known.emplace(bits, uint16_t(known.size()));
        if (is_new) words.insert(words.end(), bits.begin(), bits.end());
        block_of[block] = entry->second;
    }
    const uint64_t all = rest ? ~uint64_t(0) : 0;
    ascii[0] = block_of.empty() ? all : words[size_t(block_of[0]) * 4];
    ascii[1] = block_of.empty() ? all : words[size_t(block_of[0]) * 4 + 1];
    for (char32_t byte = 0; byte < 256; ++byte) {
        bytes[byte] =
            byte < 128          ? contains(byte)
            : contains(invalid) ? true
            : byte < 0xC2       ? false
            : byte < 0xE0       ? overlaps(ranges, (byte & 0x1F) << 6, (byte & 0x1F) << 6 | 0x3F)
            : byte < 0xF0       ? overlaps(ranges, (byte & 0xF) << 12, (byte & 0xF) << 12 | 0xFFF)
                                : overlaps(ranges, (byte & 7) << 18, (byte & 7) << 18 | 0x3FFFF);
    }
}

}  // namespace nn::text
