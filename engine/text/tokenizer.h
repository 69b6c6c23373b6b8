// A tokenizer, as tokenizer.json describes it: added tokens are cut out of the text; the rest is
// normalized, split into pieces, and the model turns the pieces into tokens.
#pragma once
#include <bitset>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/model.h"
#include "engine/text/steps.h"

namespace nn::text {

// A token that is found in the text before it is split.
struct AddedToken {
    std::string text;
    int32_t id;
    bool special;      // found only if the caller allows it
    bool normalized;   // searched in the normalized text
    bool single_word;  // not within a word
    bool left, right;  // takes white space on its left and right
};

// Finds added tokens.
class AddedTokens {
public:
    void add(AddedToken token);
    bool empty() const { return tokens.empty(); }
    // Calls rest(text) for the text between tokens and found(id) for tokens, from left to right.
    template <class R, class F>
    void each(std::string_view text, bool allow_special, R rest, F found) const;

private:
    // The longest token with which the text begins, or nullptr.
    const AddedToken* at_begin(std::string_view text) const;
    static bool is_within_word(std::string_view text, size_t first, size_t last);

    std::vector<AddedToken> tokens;
    Trie trie;  // of indices
    std::bitset<256> first_bytes;
};

// Remembers the tokens of short pieces.
class PieceCache {
public:
    static constexpr size_t longest = 64;  // in bytes
    // The tokens of a piece: first and count; nullptr if unknown.
    const int32_t* find(std::string_view piece, size_t* count) const;
    void put(std::string_view piece, const int32_t* ids, size_t count);

private:
    static constexpr size_t most = size_t(1) << 17;  // entries; at most half of them are used
    struct Entry {
        uint64_t hash = 0;  // 0: unused
        uint32_t text = 0, ids = 0;
        uint16_t length = 0, count = 0;
    };
    static uint64_t hash_of(std::string_view piece);
    size_t place(std::string_view piece, uint64_t hash) const;  // an index
    void make_room();
    std::vector<Entry> entries;
    std::string texts;
    Ids tokens;
    size_t used = 0;
};

class Tokenizer {
public:
    explicit Tokenizer(std::unique_ptr<Model> model) : model(std::move(model)) {}

    void add_normalizer(std::unique_ptr<Normalizer> step) {
        normalizers.push_back(std::move(step));
    }
    void add_splitter(std::unique_ptr<Splitter> step);  // at most 100
    // After all steps, since a token may be searched in normalized text.
    void add_token(AddedToken token);

    // The ids of a text, valid until the next call. special: the texts of special tokens are
    // tokens.
    const Ids& encode(std::string_view text, bool special);
    const Ids& encoded() const { return ids; }  // by the last call
    const std::string& first_dropped() const { return model->first_dropped(); }
    // Calls each(piece) for the pieces of a text without added tokens. Fails if there are
    // normalizers, since the pieces would not be parts of the text.
    void each_piece(std::string_view text, const Splitter::Next& each) const;

private:
    void encode_segment(std::string_view text, bool begins, bool special);
    void encode_piece(std::string_view piece);
    std::string normalized(std::string_view text, bool& begins) const;
    void split(Piece piece, size_t step, const Splitter::Next& each) const;

    std::unique_ptr<Model> model;
    std::vector<std::unique_ptr<Normalizer>> normalizers;
    std::vector<std::unique_ptr<Splitter>> splitters;
    AddedTokens plain, in_normalized;
    PieceCache cache;
    Ids ids;
    int64_t pieces = 0;
};

}  // namespace nn::text
