// Sets of code points: as ranges while a regular expression is compiled, as tables while it runs.
#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nn::text {

// First and last code points: sorted, apart from each other, up to `invalid`.
using Ranges = std::vector<std::pair<char32_t, char32_t>>;

Ranges united(Ranges a, const Ranges& b);
Ranges complement(const Ranges& a);
Ranges intersection(const Ranges& a, const Ranges& b);

Ranges ranges_of_categories(uint32_t bits);  // of Unicode::category_bits
Ranges ranges_of_words(bool in_brackets);    // what \w matches
// What \p{name} matches: a general category or a script, in any case; empty: unknown.
Ranges ranges_of_property(std::string name);

class CharacterSet {
public:
    explicit CharacterSet(const Ranges& ranges);
    bool contains_ascii(uint8_t code) const { return ascii[code >> 6] >> (code & 63) & 1; }
    bool contains(char32_t code) const {
        if (code < 128) return contains_ascii(uint8_t(code));
        const size_t block = code >> 8;
        if (block >= block_of.size()) return rest;
        return words[size_t(block_of[block]) * 4 + (code >> 6 & 3)] >> (code & 63) & 1;
    }
    // The first bytes of the characters in the set.
    const std::bitset<256>& first_bytes() const { return bytes; }

private:
    uint64_t ascii[2];
    std::vector<uint16_t> block_of;  // by code / 256, as far as blocks differ from `rest`
    std::vector<uint64_t> words;     // of the distinct blocks: 4 words, a bit per code
    bool rest;                       // whether the set contains all codes behind the blocks
    std::bitset<256> bytes;
};

}  // namespace nn::text
