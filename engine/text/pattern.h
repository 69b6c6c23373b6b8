// Regular expressions as tokenizer.json files use them to split text. Supported: characters, sets
// ([...], \p{...}, \s, \d, their negations), groups with alternatives, (?i:...) with ASCII letters,
// look-ahead, and the quantifiers ? * + {m,n}, also lazy and possessive; a group can only have ?.
// Anything else is refused.
#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/utf8.h"

namespace nn::text {

class CharacterSet {
public:
    bool contains(char32_t code) const {
        if (code < 128) return ascii[code];
        return contains_other(code);
    }
    void add(char32_t first, char32_t last) { ranges.emplace_back(first, last); }
    // A code point has one category, so all that have others are add_categories(~bits).
    void add_categories(uint32_t bits) { categories |= bits; }
    void negate() { negated = !negated; }
    void finish();  // fills `ascii`

private:
    bool contains_other(char32_t code) const;

    std::bitset<128> ascii;
    uint32_t categories = 0;
    std::vector<std::pair<char32_t, char32_t>> ranges;
    bool negated = false;
};

class Pattern {
public:
    // Throws Error if the expression is not supported, or may match the empty text.
    explicit Pattern(const std::string& source);

    // Calls each(first, last, is_match) for the matches from left to right, and for the text
    // between them. Throws Error where the work is out of proportion to the text.
    template <class F> void each(std::string_view text, F call) const {
        const char *at = text.data(), *const end = at + text.size(), *rest = at;
        most_work = work + 100'000'000 + 100 * int64_t(text.size());
        while (at < end) {
            const char* const stop = run(start, at, end);
            if (!stop) {
                at += decode(at, end).length;
                continue;
            }
            if (rest < at) call(rest, at, false);
            call(at, stop, true);
            rest = at = stop;
        }
        if (rest < end) call(rest, end, false);
    }

private:
    friend class PatternCompiler;
    enum class Kind { set, group, look_ahead, accept };
    enum class Mode { greedy, lazy, possessive };
    // The bytes that a match may begin with; and whether it may be empty.
    static constexpr size_t empty_match = 256;
    using Beginnings = std::bitset<257>;
    struct Node {
        Kind kind = Kind::accept;
        CharacterSet set;
        int32_t least = 1, most = 1;  // repetitions; a group has most 1
        Mode mode = Mode::greedy;
        bool negative = false;  // a look-ahead that must fail
        int32_t next = -1;
        std::vector<int32_t> alternatives;  // first nodes; a look-ahead's end with accept
        std::vector<Beginnings> beginnings;
    };
    // The end of the match of the nodes from `node` on that begins at `at`; nullptr: none.
    const char* run(int32_t node, const char* at, const char* end) const;
    const char* run_set(const Node& node, const char* at, const char* end) const;

    void spend(int64_t amount) const {
        left -= amount;
        if (left < 0) check_work();
    }
    void check_work() const;

    std::vector<Node> nodes;
    int32_t start = 0;
    // In calls of run() and bytes: done before the last check, its limit, and until the next check.
    mutable int64_t work = 0, most_work = 0, left = 0;
};

}  // namespace nn::text
