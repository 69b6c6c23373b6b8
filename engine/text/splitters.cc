// The pre-tokenizers of tokenizer.json, equal to those of the library tokenizers.
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/pattern.h"
#include "engine/text/steps.h"
#include "engine/text/unicode.h"

namespace nn::text {

namespace {

// What becomes of the matches of a pattern, which cut a text.
enum class Behaviour { removed, isolated, contiguous, merged_with_previous, merged_with_next };

Behaviour behaviour_of(const std::string& name) {
    if (name == "Removed") return Behaviour::removed;
    if (name == "Isolated") return Behaviour::isolated;
    if (name == "Contiguous") return Behaviour::contiguous;
    if (name == "MergedWithPrevious") return Behaviour::merged_with_previous;
    if (name == "MergedWithNext") return Behaviour::merged_with_next;
    fail(
        "the behaviour '%s' of a pre-tokenizer is unknown; it must be Removed, Isolated, "
        "Contiguous, MergedWithPrevious or MergedWithNext",
        name.c_str());
}

struct Match {
    const char *first, *last;
    bool is_match;
};

// Merges neighbours according to a behaviour other than removed and isolated.
std::vector<Match> merged(const std::vector<Match>& matches, Behaviour behaviour) {
    std::vector<Match> out;
    const bool to_next = behaviour == Behaviour::merged_with_next;
    bool previous = false;
    const auto take = [&](const Match& match) {
        const bool joins = behaviour == Behaviour::contiguous ? match.is_match == previous
                                                              : match.is_match && !previous;
        if (!joins || out.empty()) {
            out.push_back(match);
        } else if (to_next) {
            out.back().first = match.first;
        } else {
            out.back().last = match.last;
        }
        previous = match.is_match;
    };
    if (to_next) {
        for (auto m = matches.rbegin(); m != matches.rend(); ++m) take(*m);
        return {out.rbegin(), out.rend()};
    }
    for (const Match& match : matches) take(match);
    return out;
}

// Passes on the parts between `first` and `last` of a piece.
void pass(Piece whole, const char* first, const char* last, const Splitter::Next& next) {
    if (first < last)
        next({{first, size_t(last - first)}, whole.begins && first == whole.text.data()});
}

// Passes on the pieces that find(each) makes: it calls each(first, last, is_match).
template <class F>
void split_by(Piece piece, Behaviour behaviour, const Splitter::Next& next, F find) {
    if (behaviour == Behaviour::removed || behaviour == Behaviour::isolated) {
        find([&](const char* first, const char* last, bool is_match) {
            if (!is_match || behaviour == Behaviour::isolated) pass(piece, first, last, next);
        });
        return;
    }
    std::vector<Match> matches;
    find([&](const char* first, const char* last, bool is_match) {
        matches.push_back({first, last, is_match});
    });
    for (const Match& match : merged(matches, behaviour))
        pass(piece, match.first, match.last, next);
}

// Calls each(first, last, is_match) for single characters that fulfil a condition, and the text
// between them.
template <class C, class F> void each_matching(std::string_view text, C matches, F each) {
    const char* rest = text.data();
    each_character(text, [&](char32_t code, std::string_view bytes) {
        if (!matches(code)) return;
        if (rest < bytes.data()) each(rest, bytes.data(), false);
        rest = bytes.data() + bytes.size();
        each(bytes.data(), rest, true);
    });
    if (rest < text.data() + text.size()) each(rest, text.data() + text.size(), false);
}

// Cuts at characters that fulfil a condition.
template <class C> class CharacterSplit : public Splitter {
public:
    CharacterSplit(C matches, Behaviour behaviour) : matches(matches), behaviour(behaviour) {}
    void split(Piece piece, const Next& next) const override {
        split_by(piece, behaviour, next,
                 [&](auto each) { each_matching(piece.text, matches, each); });
    }

private:
    const C matches;
    const Behaviour behaviour;
};

template <class C> std::unique_ptr<Splitter> split_at(C matches, Behaviour behaviour) {
    return std::make_unique<CharacterSplit<C>>(matches, behaviour);
}

class PatternSplit : public Splitter {
public:
    PatternSplit(const std::string& source, Behaviour behaviour, bool invert)
        : pattern(source), behaviour(behaviour), invert(invert) {}
    void split(Piece piece, const Next& next) const override {
        split_by(piece, behaviour, next, [&](auto each) {
            pattern.each(piece.text, [&](const char* first, const char* last, bool is_match) {
                each(first, last, is_match != invert);
            });
        });
    }

private:
    const Pattern pattern;
    const Behaviour behaviour;
    const bool invert;
};

class TextSplit : public Splitter {
public:
    TextSplit(std::string delimiter, Behaviour behaviour, bool invert)
        : delimiter(std::move(delimiter)), behaviour(behaviour), invert(invert) {
        if (this->delimiter.empty()) fail("Split: the pattern is empty");
    }
    void split(Piece piece, const Next& next) const override {
        split_by(piece, behaviour, next, [&](auto each) {
            const std::string_view text = piece.text;
            for (size_t at = 0; at < text.size();) {
                const size_t found = std::min(text.find(delimiter, at), text.size());
                const char* const first = text.data() + found;
                if (found > at) each(text.data() + at, first, invert);
                at = found + delimiter.size();
                if (found < text.size()) each(first, first + delimiter.size(), !invert);
            }
        });
    }

private:
    const std::string delimiter;
    const Behaviour behaviour;
    const bool invert;
};

// GPT-2's: contractions; words, numbers and other characters, each with the space before it.
const char* const gpt2_pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

class ByteLevel : public Splitter {
public:
    explicit ByteLevel(int32_t flags) : add_space(flags & 1) {
        if (flags & 2) pattern.emplace(gpt2_pattern, Behaviour::isolated, false);
    }
    void split(Piece piece, const Next& next) const override {
        std::string changed;
        if (add_space && piece.text[0] != ' ') {
            changed.append(" ").append(piece.text);
            piece.text = changed;
        }
        pattern ? pattern->split(piece, next) : next(piece);
    }

private:
    const bool add_space;
    std::optional<PatternSplit> pattern;
};

class Metaspace : public Splitter {
public:
    explicit Metaspace(const StepSettings& settings)
        : mark(settings.text),
          cuts(settings.flags & 1),
          always(settings.content == "always"),
          first_only(settings.content == "first") {
        if (mark.empty()) fail("Metaspace: the replacement is empty");
        if (!always && !first_only && settings.content != "never")
            fail("Metaspace: prepend_scheme is '%s'; it must be always, first or never",
                 settings.content.c_str());
    }
    void split(Piece piece, const Next& next) const override {
        std::string text;
        text.reserve(piece.text.size() + mark.size());
        for (const char c : piece.text) c == ' ' ? text += mark : text += c;
        if ((always || (first_only && piece.begins)) && text.compare(0, mark.size(), mark) != 0)
            text.insert(0, mark);
        piece.text = text;
        if (!cuts) return next(piece);
        for (size_t at = 0; at < text.size();) {
            const size_t stop = std::min(text.find(mark, at + 1), text.size());
            pass(piece, text.data() + at, text.data() + stop, next);
            at = stop;
        }
    }

private:
    const std::string mark;
    const bool cuts, always, first_only;
};

bool is_punctuation(char32_t code) { return unicode().has(code, punctuation); }

// White space goes, and punctuation stands alone.
class BertSplit : public Splitter {
public:
    void split(Piece piece, const Next& next) const override {
        words->split(piece, [&](Piece word) { signs->split(word, next); });
    }

private:
    const std::unique_ptr<Splitter> words = split_at(is_space, Behaviour::removed);
    const std::unique_ptr<Splitter> signs = split_at(is_punctuation, Behaviour::isolated);
};

// Runs of word characters, and runs of others that are not white space.
class Whitespace : public Splitter {
public:
    void split(Piece piece, const Next& next) const override {
        const Unicode& table = unicode();
        const char* first = piece.text.data();
        int run = 0;  // 0 white space, 1 word, 2 others
        each_character(piece.text, [&](char32_t code, std::string_view bytes) {
            const int now = table.has(code, word) ? 1 : is_space(code) ? 0 : 2;
            if (now == run) return;
            if (run) pass(piece, first, bytes.data(), next);
            first = bytes.data();
            run = now;
        });
        if (run) pass(piece, first, piece.text.data() + piece.text.size(), next);
    }
};

}  // namespace

std::unique_ptr<Splitter> new_splitter(const StepSettings& settings) {
    const std::string& kind = settings.kind;
    const auto is_number = [](char32_t code) { return unicode().has(code, numeric); };
    if (kind == "ByteLevel") return std::make_unique<ByteLevel>(settings.flags);
    if (kind == "Metaspace") return std::make_unique<Metaspace>(settings);
    if (kind == "BertPreTokenizer") return std::make_unique<BertSplit>();
    if (kind == "Whitespace") return std::make_unique<Whitespace>();
    if (kind == "WhitespaceSplit") return split_at(is_space, Behaviour::removed);
    if (kind == "Digits")
        return split_at(is_number,
                        settings.flags & 1 ? Behaviour::isolated : Behaviour::contiguous);
    if (kind == "Punctuation") return split_at(is_punctuation, behaviour_of(settings.content));
    if (kind == "CharDelimiterSplit")
        return std::make_unique<TextSplit>(settings.text, Behaviour::removed, false);
    if (kind != "Split") return nullptr;
    const Behaviour behaviour = behaviour_of(settings.content);
    const bool invert = settings.flags & 2;
    if (settings.flags & 1) return std::make_unique<PatternSplit>(settings.text, behaviour, invert);
    return std::make_unique<TextSplit>(settings.text, behaviour, invert);
}

}  // namespace nn::text
