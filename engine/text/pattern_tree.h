// A regular expression as a tree: what pattern_parse.cc reads and pattern.cc compiles.
#pragma once
#include <climits>
#include <string>
#include <vector>

#include "engine/text/character_set.h"

namespace nn::text {

struct PatternItem {
    enum class Kind {
        set,
        group,
        look_ahead,
        look_behind,
        line_begin,     // ^
        line_end,       // $
        text_begin,     // \A
        text_end,       // \z
        last_line_end,  // \Z: at the end, or before a newline there
        word_edge,      // \b
        no_word_edge,
    };
    enum class Mode { greedy, lazy, possessive };
    using Sequence = std::vector<PatternItem>;

    Kind kind = Kind::set;
    Ranges set;
    int32_t least = 1, most = 1;  // repetitions
    Mode mode = Mode::greedy;
    bool negative = false;  // a look-ahead or look-behind that must fail
    std::vector<Sequence> alternatives;
};

// Throws Error if the expression is not supported.
std::vector<PatternItem::Sequence> parse_pattern(const std::string& source);

}  // namespace nn::text
