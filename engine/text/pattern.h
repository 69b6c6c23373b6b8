// Regular expressions as tokenizer.json files use them to split text, with the meaning that
// Oniguruma gives them. Supported: characters, sets ([...] with sets in them and &&, \p{...}, \s,
// \d, \w, their negations), groups with alternatives, atomic groups, (?i:...) with ASCII letters,
// look-ahead, look-behind of a fixed number of characters, the anchors ^ $ \A \z \Z \b \B, and the
// quantifiers ? * + {m,n}, also lazy and possessive. Anything else is refused.
#pragma once
#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/text/character_set.h"
#include "engine/text/pattern_tree.h"
#include "engine/text/utf8.h"

namespace nn::text {

class Pattern {
public:
    // Throws Error if the expression is not supported.
    explicit Pattern(const std::string& source);
    Pattern(const Pattern&) = delete;

    // Calls each(first, last, is_match) for the matches from left to right, and for the text
    // between them. A match may be empty, but not directly behind another one. Throws Error where
    // the work is out of proportion to the text.
    template <class F> void each(std::string_view given, F call) const {
        const char *at = given.data(), *rest = at, *matched = nullptr;
        begin_search(given);
        const Release release{retries};
        while (at <= end && begin < end) {
            const char* const stop = run(start, at);
            if (!stop || (stop == at && at == matched)) {
                if (at == end) break;
                at = stop ? at + decode(at, end).length : behind_failure(at);
                continue;
            }
            if (rest < at) call(rest, at, false);
            call(at, stop, true);
            rest = at = matched = stop;
        }
        if (rest < end) call(rest, end, false);
    }

private:
    friend class PatternCompiler;
    using Mode = PatternItem::Mode;
    enum class Kind { set, repeated_set, choice, anchor, look_ahead, look_behind, atomic, accept };
    // The bytes that a match may begin with; and whether it may begin without one.
    static constexpr size_t no_byte = 256;
    using Beginnings = std::bitset<257>;
    struct Node {
        Kind kind = Kind::accept;
        const CharacterSet* set = nullptr;
        int32_t least = 1, most = 1;  // repetitions of the set; characters of a look-behind: least
        Mode mode = Mode::greedy;     // of a repeated set
        PatternItem::Kind anchor = PatternItem::Kind::line_begin;
        bool negative = false;  // a look-ahead or look-behind that must fail
        int32_t next = -1;      // not of a choice
        // First nodes. Those of a choice go on behind it; of others there is one, up to an accept.
        std::vector<int32_t> alternatives;
        // Of a choice: by the next byte or no_byte, the alternatives to try, as bits.
        std::vector<uint64_t> to_try;
        Beginnings following;  // of a repeated set: how what follows it may begin
    };
    // Where to go on after a failure: at a node, with what it has left to try.
    struct Retry {
        int32_t node;
        const char* at;
        union {
            const char* first;  // a greedy set: the fewest repetitions end here
            int64_t count;      // a lazy set: repetitions so far
            uint64_t to_try;    // a choice
        };
    };

    // Frees the memory of a search that took much of it, also after an error.
    struct Release {
        std::vector<Retry>& retries;
        ~Release() {
            if (retries.capacity() > 1 << 16) std::vector<Retry>().swap(retries);
        }
    };

    void begin_search(std::string_view text) const;
    // The end of the match of the nodes from `node` on that begins at `at`; nullptr: none.
    const char* run(int32_t node, const char* at) const;
    bool retry(int32_t& node, const char*& at) const;  // takes the last Retry; false: it fails
    bool begin_repeated(const Node& node, int32_t index, const char*& at) const;
    bool choose(int32_t& node, const char* at, uint64_t to_try) const;
    const char* behind(const CharacterSet& set, const char* at) const;
    bool shortens(const Node& node, const char* first, const char* last) const;
    const char* shortened(const Node& node, const char* first, const char* last) const;
    bool is_at(PatternItem::Kind anchor, const char* at) const;
    bool looks(const Node& node, const char* at) const;
    const char* behind_failure(const char* at) const;

    void spend(int64_t amount) const {
        left -= amount;
        if (left < 0) check_work();
    }
    void check_work() const;

    const std::string source;
    std::vector<Node> nodes;
    std::map<Ranges, CharacterSet> sets;
    const CharacterSet* words = nullptr;  // for \b
    int32_t start = 0;
    // The search that is under way.
    mutable const char *begin = nullptr, *end = nullptr;
    mutable std::vector<Retry> retries;
    // In nodes and bytes: done before the last check, its limit, and until the next check.
    mutable int64_t work = 0, most_work = 0, left = 0;
};

}  // namespace nn::text
