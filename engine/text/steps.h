// The steps before a model: normalizers change a text, splitters cut it into pieces (and some
// change it too). A piece is a view; its `begins` tells whether it begins where the whole text
// begins.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace nn::text {

struct Piece {
    std::string_view text;
    bool begins;
};

class Normalizer {
public:
    virtual ~Normalizer() = default;
    // Appends the changed text to `out`. `begins` becomes false where its first characters go.
    virtual void apply(std::string_view text, std::string& out, bool& begins) const = 0;
};

class Splitter {
public:
    using Next = std::function<void(Piece)>;
    virtual ~Splitter() = default;
    // Calls next(piece) for the pieces from left to right. They are valid during the call.
    virtual void split(Piece piece, const Next& next) const = 0;
};

// What a step needs: numbers and texts, whose meaning depends on its kind.
struct StepSettings {
    std::string kind;
    int32_t flags = 0;
    std::string text, content;
};

// Kinds: NFC NFD NFKC NFKD Lowercase StripAccents Nmt; Strip (flags: 1 left, 2 right); Prepend
// (text); Replace (text by content; flags 1: text is a regular expression); Precompiled (text: the
// map); BertNormalizer (flags: 1 clean_text, 2 handle_chinese_chars, 4 strip_accents, 8 lowercase);
// SentencePiece (text: the map, or empty; content: texts that stay as they are, each with a 0
// behind it; flags: 1 add_dummy_prefix, 2 remove_extra_whitespaces, 4 escape_whitespaces, 8
// treat_whitespace_as_suffix, 16 add_dummy_prefix only at the beginning of the whole text).
// nullptr: the kind is unknown. Throws Error if a setting is wrong.
std::unique_ptr<Normalizer> new_normalizer(const StepSettings& settings);
std::unique_ptr<Normalizer> new_sentencepiece_normalizer(const StepSettings& settings);

// Kinds: ByteLevel (flags: 1 add_prefix_space, 2 use_regex); Split (text; flags: 1 a regular
// expression, 2 invert; content: the behaviour); Metaspace (text: the replacement; content:
// prepend_scheme; flags: 1 split); BertPreTokenizer; Whitespace; WhitespaceSplit; Digits (flags: 1
// individual_digits); Punctuation (content: the behaviour); CharDelimiterSplit (text).
std::unique_ptr<Splitter> new_splitter(const StepSettings& settings);

}  // namespace nn::text
