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

private:
    // The replacement of the shortest entry with which the text begins; a NULL view if there is
    // none.
    std::string_view find(std::string_view text) const;
    std::vector<uint32_t> units;
    std::string replacements;  // each ends with a 0
};

}  // namespace nn::text
