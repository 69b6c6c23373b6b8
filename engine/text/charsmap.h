// SentencePiece's precompiled map of characters: a double-array trie (Yata's Darts-clone) from
// texts to offsets of their replacements.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nn::text {

class CharsMap {
public:
    // blob: the bytes of the map. Throws Error if it is damaged.
    explicit CharsMap(std::string_view blob);

    // The text with its characters replaced. As in the library tokenizers, a cluster of less than 6
    // bytes is replaced as a whole, by the shortest entry with which it begins.
    void apply(std::string_view text, std::string& out) const;

    struct Entry {
        size_t length = 0;             // in bytes; 0: there is none
        std::string_view replacement;  // NULL: there is none
    };
    // The longest entry with which the text begins.
    Entry longest(std::string_view text) const;

private:
    // Calls each(entry) for the entries with which the text begins, shortest first, while it
    // returns true.
    template <class F> void each_entry(std::string_view text, F each) const;
    std::vector<uint32_t> units;
    std::string replacements;  // each ends with a 0
};

}  // namespace nn::text
