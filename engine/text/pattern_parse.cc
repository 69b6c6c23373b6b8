// Parses the expressions of pattern.h, in the syntax of Oniguruma.
#include <cstring>
#include <map>

#include "engine/base/error.h"
#include "engine/text/pattern_tree.h"
#include "engine/text/unicode.h"

namespace nn::text {

namespace {

using Item = PatternItem;
using Kind = Item::Kind;
using Mode = Item::Mode;

constexpr char32_t no_character = invalid;  // for a class such as \s

class Parser {
public:
    explicit Parser(const std::string& text)
        : source(text), at(source.data()), end(at + source.size()) {}

    std::vector<Item::Sequence> parse() {
        if (source.size() > 20000)
            fail("a regular expression of %zu bytes is not supported: at most 20000",
                 source.size());
        std::vector<Item::Sequence> alternatives = parse_alternatives(0);
        if (at < end) refuse("a ')' without '('");
        return alternatives;
    }

private:
    [[noreturn]] void refuse(const std::string& why) const {
        fail("the regular expression '%s' is not supported: %s, at byte %d", source.c_str(),
             why.c_str(), int(at - source.data()));
    }
    bool comes(const char* text) const {
        const size_t length = std::strlen(text);
        return size_t(end - at) >= length && std::memcmp(at, text, length) == 0;
    }
    bool next(const char* text) {  // takes the text if it comes next
        if (!comes(text)) return false;
        at += std::strlen(text);
        return true;
    }
    bool comes_one_of(const char* signs) const {
        return at < end && *at && std::strchr(signs, *at);
    }
    char32_t take() {
        if (at >= end) refuse("it ends too early");
        const Character c = decode(at, end);
        if (c.code == invalid) refuse("it is not UTF-8");
        at += c.length;
        return c.code;
    }

    std::vector<Item::Sequence> parse_alternatives(int depth) {
        if (depth > 20) refuse("its groups are nested too deeply");
        std::vector<Item::Sequence> alternatives(1);
        while (at < end && *at != ')') {
            if (next("|")) {
                alternatives.emplace_back();
                before = no_character;
            } else {
                alternatives.back().push_back(parse_item(depth));
            }
        }
        return alternatives;
    }

    // In (?i:...), one character stands for two letters: U+00DF for ss, U+FB01 for fi.
    void refuse_joined(char32_t code) {
        const char32_t letter = ignores_case ? code | 0x20u : no_character;
        const bool joined = before == 's'   ? letter == 's' || letter == 't'
                            : before == 'f' ? letter == 'f' || letter == 'i' || letter == 'l'
                                            : false;
        if (joined) refuse("two letters in (?i:...) that are one character in another case");
        before = letter;
    }

    Item parse_item(int depth) {
        Item item;
        if (next("(")) {
            parse_group(item, depth);
        } else if (!parse_anchor(item)) {
            char32_t code = no_character;
            item.set = parse_set(code);
            refuse_joined(code);
        }
        for (int stacked = 0; comes_one_of("?*+{"); ++stacked) {
            if (stacked == 20) refuse("more than 20 quantifiers in a row");
            if (item.kind != Kind::set && item.kind != Kind::group)
                refuse("a quantifier behind something without characters");
            if (item.least != 1 || item.most != 1 || item.mode != Mode::greedy) {
                Item outer;
                outer.kind = Kind::group;
                outer.alternatives.emplace_back().push_back(std::move(item));
                item = std::move(outer);
            }
            parse_quantifier(item);
        }
        return item;
    }

    void parse_group(Item& item, int depth) {
        const bool outer = ignores_case;
        item.kind = Kind::group;
        if (next("?=")) {
            item.kind = Kind::look_ahead;
        } else if (next("?!")) {
            item.kind = Kind::look_ahead;
            item.negative = true;
        } else if (next("?<=")) {
            item.kind = Kind::look_behind;
        } else if (next("?<!")) {
            item.kind = Kind::look_behind;
            item.negative = true;
        } else if (next("?>")) {
            item.mode = Mode::possessive;
        } else if (next("?i:")) {
            ignores_case = true;
        } else if (!next("?:") && comes("?")) {
            refuse("a group of this kind");
        }
        item.alternatives = parse_alternatives(depth + 1);
        if (!next(")")) refuse("a '(' without ')'");
        ignores_case = outer;
    }

    bool parse_anchor(Item& item) {
        static const std::pair<const char*, Kind> anchors[] = {
            {"^", Kind::line_begin},    {"$", Kind::line_end},        {"\\A", Kind::text_begin},
            {"\\z", Kind::text_end},    {"\\Z", Kind::last_line_end}, {"\\b", Kind::word_edge},
            {"\\B", Kind::no_word_edge}};
        for (const auto& [text, kind] : anchors) {
            if (!next(text)) continue;
            item.kind = kind;
            return true;
        }
        return false;
    }

    void parse_quantifier(Item& item) {
        const bool braces = next("{");
        if (braces) {
            // Oniguruma takes {,} literally.
            if (comes(",}")) refuse("a quantifier in {} that is not {m,n}");
            item.least = comes(",") ? 0 : number();
            item.most = next(",") ? (comes("}") ? INT_MAX : number()) : item.least;
            if (!next("}") || item.most < item.least || item.most == 0)
                refuse("a quantifier in {} that is not {m,n}");
            // As in Ruby, {n}? is (?:...{n})?, and {m,n}+ is (?:...{m,n})+.
            if (item.least < item.most && next("?")) item.mode = Mode::lazy;
            return;
        }
        if (next("?")) {
            item.least = 0;
        } else if (next("*")) {
            item.least = 0, item.most = INT_MAX;
        } else if (next("+")) {
            item.most = INT_MAX;
        }
        if (next("?")) {
            item.mode = Mode::lazy;
        } else if (next("+")) {
            item.mode = Mode::possessive;
        }
    }

    int32_t number() {
        int32_t value = 0;
        const char* const first = at;
        while (at < end && *at >= '0' && *at <= '9' && value < 1000)
            value = 10 * value + *at++ - '0';
        if (at == first || value > 1000) refuse("a number up to 1000 is needed");
        return value;
    }

    // One character, a class such as \p{L}, '.', or [...]. code: the character, or unchanged.
    Ranges parse_set(char32_t& code) {
        if (next("[")) return parse_brackets(0);
        if (next(".")) return complement({{'\n', '\n'}});
        if (comes_one_of("*+?{")) refuse(std::string("'") + *at + "' has nothing to repeat");
        if (comes("}")) refuse("a '}' without '{'");
        const Ranges set = parse_single(code);
        return ignores_case && code != no_character ? in_both_cases(set) : set;
    }

    // A character, or what follows a backslash. code: the character, or no_character.
    Ranges parse_single(char32_t& code) {
        if (next("\\")) return parse_escape(code);
        code = take();
        return {{code, code}};
    }

    // ASCII only. U+017F (long s) also matches s, and U+212A (Kelvin sign) matches k.
    Ranges in_both_cases(const Ranges& set) const {
        if (!set.empty() && set.back().second >= 128)
            refuse("a character beyond ASCII in (?i:...)");
        Ranges out = set;
        for (char32_t lower = 'a'; lower <= 'z'; ++lower) {
            const char32_t upper = lower - 0x20;
            if (intersection(set, {{upper, upper}, {lower, lower}}).empty()) continue;
            out.insert(out.end(), {{upper, upper}, {lower, lower}});
            if (lower == 's') out.emplace_back(0x17F, 0x17F);
            if (lower == 'k') out.emplace_back(0x212A, 0x212A);
        }
        return united(std::move(out), {});
    }

    Ranges parse_escape(char32_t& code) {
        static const std::map<char32_t, char32_t> controls = {
            {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'a', 7}, {'e', 27}};
        code = take();
        const char32_t letter = code;
        if (const auto control = controls.find(code); control != controls.end()) {
            code = control->second;
        } else if (code == '0' && !comes_one_of("01234567")) {
            code = 0;
        } else if (code == 'u' || code == 'x') {
            code = parse_code_point(code);
        } else {
            const bool special = (code >= '0' && code <= '9') || (code | 0x20) - 'a' < 26u;
            if (special) code = no_character;
        }
        if (code != no_character) return {{code, code}};
        switch (letter) {
            case 's': return spaces();
            case 'S': return complement(spaces());
            case 'd': return ranges_of_categories(Unicode::category_bits("Nd"));
            case 'D': return ranges_of_categories(~Unicode::category_bits("Nd"));
            case 'w': return words();
            case 'W': return complement(words());
            case 'p': return parse_property(false);
            case 'P': return parse_property(true);
            default: refuse(std::string("the escape \\") + char(letter));
        }
    }

    // \uHHHH, \xHH or \x{H...}, behind the letter.
    char32_t parse_code_point(char32_t letter) {
        const bool braces = letter == 'x' && next("{");
        char32_t value = 0;
        int digits = 0;
        for (; digits < (braces ? 6 : letter == 'u' ? 4 : 2); ++digits) {
            if (!comes_one_of("0123456789abcdefABCDEF")) break;
            const char32_t c = take();
            value = value << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        const bool whole = braces ? digits > 0 && next("}") : digits == (letter == 'u' ? 4 : 2);
        if (!whole || value >= invalid || (letter == 'x' && !braces && value >= 128))
            refuse("an invalid code point");
        return value;
    }

    Ranges parse_property(bool outside) {
        if (!next("{")) refuse("\\p without {}");
        outside = next("^") != outside;
        std::string name;
        while (at < end && *at != '}') name += *at++;
        const Ranges set = ranges_of_property(name);
        if (!next("}") || set.empty())
            refuse("a property that is neither a general category nor one of the known scripts");
        return outside ? complement(set) : set;
    }

    static Ranges spaces() {
        return united(ranges_of_categories(Unicode::category_bits("Z")), {{9, 13}, {0x85, 0x85}});
    }

    const Ranges& words() {
        Ranges& known = known_words[in_brackets];
        if (known.empty()) known = ranges_of_words(in_brackets);
        return known;
    }

    // Behind '[': a union of characters, ranges and classes; && between unions intersects them.
    Ranges parse_brackets(int depth) {
        if (depth > 20) refuse("its brackets are nested too deeply");
        const bool negated = next("^");
        in_brackets = true;
        Ranges whole = complement({}), part;
        bool any = false;
        for (; !next("]"); any = true) {
            if (next("&&")) {
                if (!any || comes("]")) refuse("an intersection with nothing");
                whole = intersection(whole, united(std::move(part), {}));
                part.clear();
            } else {
                const Ranges member = parse_member(depth);
                part.insert(part.end(), member.begin(), member.end());
            }
        }
        if (!any) refuse("empty brackets");
        in_brackets = depth > 0;
        whole = intersection(whole, united(std::move(part), {}));
        // Oniguruma ignores the case of the whole set, not of the sets in it.
        if (ignores_case && depth == 0) whole = in_both_cases(whole);
        return negated ? complement(whole) : whole;
    }

    Ranges parse_member(int depth) {
        if (comes("[:")) refuse("a POSIX bracket expression");
        if (next("[")) return parse_brackets(depth + 1);
        char32_t first = no_character, last = no_character;
        const Ranges single = parse_single(first);
        if (!comes("-") || comes("-]") || comes("-&&")) return single;
        next("-");
        if (!comes("[")) parse_single(last);
        if (first == no_character || last == no_character || last < first) refuse("a bad range");
        return {{first, last}};
    }

    const std::string& source;
    const char *at, *end;
    bool ignores_case = false, in_brackets = false;
    char32_t before = no_character;  // the last letter in (?i:...)
    Ranges known_words[2];           // what \w matches: outside brackets, in them
};

}  // namespace

std::vector<Item::Sequence> parse_pattern(const std::string& source) {
    return Parser(source).parse();
}

}  // namespace nn::text
