// Models turn a piece of text into tokens: byte-pair encoding, unigrams, and WordPiece.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/table.h"

namespace nn::text {

using Ids = std::vector<int32_t>;

// The texts of tokens, in one block.
class Vocabulary {
public:
    // ends[id]: of the text of the token within `bytes`. A later token of the same text wins.
    Vocabulary(std::string bytes, std::vector<int64_t> ends);
    Vocabulary(const Vocabulary&) = delete;  // `ids` points into `bytes`
    int32_t size() const { return int32_t(ends.size()); }
    std::string_view text(int32_t id) const;
    int32_t find(std::string_view token) const;  // its id, or -1
    // Appends the tokens <0x00> to <0xFF> of the bytes of a text; returns false, and appends none,
    // if one of them does not exist.
    bool append_bytes(std::string_view text, Ids& out) const;

private:
    std::string bytes;
    std::vector<int64_t> ends;
    std::unordered_map<std::string_view, int32_t> ids;
    Ids byte_ids;
};

// Tokens by their bytes, for searches of all tokens with which a text begins.
class Trie {
public:
    void add(std::string_view token, int32_t id);
    // Calls each(length in bytes, id), shortest first.
    template <class F> void each_prefix(std::string_view text, F each) const {
        uint64_t node = 0;
        for (size_t i = 0; i < text.size(); ++i) {
            const uint64_t* const next = edges.find(edge(node, text[i]));
            if (!next) return;
            node = *next;
            if (ids[node] >= 0) each(i + 1, ids[node]);
        }
    }

private:
    static uint64_t edge(uint64_t node, char byte) {
        return node << 8 | uint8_t(byte) | 1ull << 63;
    }
    Table edges;
    Ids ids{-1};  // of the tokens that end at the nodes; -1: none does
};

struct ModelSettings {
    int32_t unknown = -1;  // the id of the token for unknown text; -1: none
    bool fuse_unknown = false, byte_fallback = false;
    bool bytes = false;          // BPE: the tokens are texts of bytes, not of characters
    bool whole_first = false;    // BPE: a piece that is a token is not split (ignore_merges)
    std::string prefix;          // WordPiece: of tokens that continue a word
    int32_t longest_word = 100;  // WordPiece: in characters
};

class Model {
public:
    Model(std::shared_ptr<const Vocabulary> vocabulary, ModelSettings settings)
        : vocabulary(std::move(vocabulary)), settings(std::move(settings)) {}
    virtual ~Model() = default;
    Model(const Model&) = delete;
    virtual void encode(std::string_view piece, Ids& out) = 0;

    // The number of bytes after which a long text can be cut without a change of its tokens.
    virtual size_t cut(std::string_view text) const { return text.size(); }
    // The first character or byte without a token that was left out; empty: none was.
    const std::string& first_dropped() const { return dropped; }

protected:
    std::string dropped;
    const std::shared_ptr<const Vocabulary> vocabulary;
    const ModelSettings settings;
};

// The number of bytes before a word mark (U+2581) that does not follow another one.
size_t before_word_mark(std::string_view text);

struct Merge {
    int32_t left, right, joined;
};

std::unique_ptr<Model> new_bpe(std::shared_ptr<const Vocabulary> vocabulary, ModelSettings settings,
                               const std::vector<Merge>& merges);
std::unique_ptr<Model> new_unigram(std::shared_ptr<const Vocabulary> vocabulary,
                                   ModelSettings settings, std::vector<double> scores);
std::unique_ptr<Model> new_wordpiece(std::shared_ptr<const Vocabulary> vocabulary,
                                     ModelSettings settings);

// Of a token in a file of the library sentencepiece.
enum class PieceType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

// The models of that library: BPE or unigram.
std::unique_ptr<Model> new_sentencepiece(std::shared_ptr<const Vocabulary> vocabulary,
                                         ModelSettings settings, std::vector<double> scores,
                                         std::vector<PieceType> types, bool is_bpe);

}  // namespace nn::text
