// Compiles the expressions of pattern.h. A sequence is compiled from its end, so that every node
// knows the one that follows it.
#include <climits>
#include <cstring>

#include "engine/base/error.h"
#include "engine/text/pattern.h"
#include "engine/text/unicode.h"

namespace nn::text {

class PatternCompiler {
public:
    PatternCompiler(Pattern& pattern, const std::string& text)
        : out(pattern), source(text), at(source.data()), end(at + source.size()) {}

    void compile() {
        const std::vector<Sequence> alternatives = parse_alternatives(0);
        if (at < end) refuse("a ')' without '('");
        const int32_t accept = add({});
        Item all;
        all.kind = Pattern::Kind::group;
        all.alternatives = alternatives;
        out.start = emit(all, accept);
        if (beginnings(out.start)[Pattern::empty_match]) refuse("it may match the empty text");
    }

private:
    using Kind = Pattern::Kind;
    using Mode = Pattern::Mode;
    struct Item;
    using Sequence = std::vector<Item>;
    struct Item {
        Kind kind = Kind::set;
        CharacterSet set;
        int32_t least = 1, most = 1;
        Mode mode = Mode::greedy;
        bool negative = false;
        std::vector<Sequence> alternatives;
    };

    [[noreturn]] void refuse(const char* why) const {
        fail("the regular expression '%s' is not supported: %s, at byte %d", source.c_str(), why,
             int(at - source.data()));
    }
    bool next(const char* text) {  // takes the text if it comes next
        const size_t length = std::strlen(text);
        if (size_t(end - at) < length || std::memcmp(at, text, length) != 0) return false;
        at += length;
        return true;
    }
    char32_t take() {
        if (at >= end) refuse("it ends too early");
        const Character c = decode(at, end);
        if (c.code == invalid) refuse("it is not UTF-8");
        at += c.length;
        return c.code;
    }

    // --- Parsing ---

    std::vector<Sequence> parse_alternatives(int depth) {
        if (depth > 20) refuse("its groups are nested too deeply");
        std::vector<Sequence> alternatives(1);
        while (at < end && *at != ')') {
            if (next("|")) {
                alternatives.emplace_back();
            } else {
                alternatives.back().push_back(parse_item(depth));
            }
        }
        return alternatives;
    }

    Item parse_item(int depth) {
        Item item;
        if (next("(")) {
            parse_group(item, depth);
        } else {
            parse_set(item.set);
        }
        parse_quantifier(item);
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
        } else if (next("?i:")) {
            ignores_case = true;
        } else if (!next("?:") && at < end && *at == '?') {
            refuse("a group of this kind");
        }
        item.alternatives = parse_alternatives(depth + 1);
        if (!next(")")) refuse("a '(' without ')'");
        ignores_case = outer;
    }

    void parse_quantifier(Item& item) {
        if (next("?")) {
            item.least = 0;
        } else if (next("*")) {
            item.least = 0, item.most = INT_MAX;
        } else if (next("+")) {
            item.most = INT_MAX;
        } else if (next("{")) {
            item.least = number();
            item.most = next(",") ? (at < end && *at == '}' ? INT_MAX : number()) : item.least;
            if (!next("}") || item.most < item.least || item.most == 0)
                refuse("a quantifier in {} that is not {m,n}");
            if (at < end && (*at == '?' || *at == '+')) refuse("a quantifier behind {}");
        } else {
            return;
        }
        if (next("?")) {
            item.mode = Mode::lazy;
        } else if (next("+")) {
            item.mode = Mode::possessive;
        }
        if (at < end && std::strchr("?*+{", *at)) refuse("a quantifier of a quantifier");
        if (item.kind == Kind::set) return;
        if (item.kind == Kind::look_ahead || item.most != 1 || item.mode != Mode::greedy)
            refuse("a quantifier behind a group that is not '?'");
    }

    int32_t number() {
        int32_t value = 0;
        const char* const first = at;
        while (at < end && *at >= '0' && *at <= '9' && value < 1000)
            value = 10 * value + *at++ - '0';
        if (at == first || value > 1000) refuse("a number up to 1000 is needed");
        return value;
    }

    // One character, a class such as \p{L}, '.', or [...].
    void parse_set(CharacterSet& set) {
        if (next("[")) {
            parse_brackets(set);
        } else if (next(".")) {
            set.add('\n', '\n');
            set.negate();
        } else if (at < end && std::strchr("^$*+?{})", *at)) {
            refuse("a sign without its meaning here");
        } else if (next("\\")) {
            parse_escape(set);
        } else {
            add_character(set, take());
        }
        set.finish();
    }

    void add_character(CharacterSet& set, char32_t code) {
        set.add(code, code);
        if (!ignores_case) return;
        if (code >= 128) refuse("a character beyond ASCII in (?i:...)");
        const char32_t lower = code | 0x20;
        if (lower < 'a' || lower > 'z') return;
        set.add(lower, lower);
        set.add(lower - 0x20, lower - 0x20);
        if (lower == 's') set.add(0x17F, 0x17F);    // the long s
        if (lower == 'k') set.add(0x212A, 0x212A);  // the sign of Kelvin
    }

    // Behind a backslash: a class; or a character, which it returns.
    char32_t parse_escape(CharacterSet& set) {
        const char32_t code = take();
        if (code == '0' && at < end && *at >= '0' && *at <= '9') refuse("an octal escape");
        switch (code) {
            case 'n':
            case 'r':
            case 't':
            case 'f':
            case 'v':
            case '0': {
                const char32_t value = code == 'n'   ? '\n'
                                       : code == 'r' ? '\r'
                                       : code == 't' ? '\t'
                                       : code == 'f' ? '\f'
                                       : code == 'v' ? '\v'
                                                     : 0;
                set.add(value, value);
                return value;
            }
            case 's': add_space(set, false); return invalid;
            case 'S': add_space(set, true); return invalid;
            case 'd': set.add_categories(Unicode::category_bits("Nd")); return invalid;
            case 'D': set.add_categories(~Unicode::category_bits("Nd")); return invalid;
            case 'p': add_property(set, false); return invalid;
            case 'P': add_property(set, true); return invalid;
            default: break;
        }
        const bool letter = (code >= '0' && code <= '9') || (code | 0x20) - 'a' < 26u;
        if (letter || code >= 128) refuse("this escape");
        add_character(set, code);
        return code;
    }

    void add_property(CharacterSet& set, bool outside) {
        if (!next("{")) refuse("\\p without {}");
        outside = next("^") != outside;
        std::string name;
        while (at < end && *at != '}') name += *at++;
        const uint32_t bits = Unicode::category_bits(name);
        if (!next("}") || !bits) refuse("a property that is no general category");
        set.add_categories(outside ? ~bits : bits);
    }

    void add_space(CharacterSet& set, bool outside) {
        if (outside) {
            if (in_brackets) refuse("\\S in brackets");
            add_space(set, false);
            return set.negate();
        }
        set.add_categories(Unicode::category_bits("Z"));
        set.add(9, 13);
        set.add(0x85, 0x85);
    }

    void parse_brackets(CharacterSet& set) {
        if (ignores_case) refuse("brackets in (?i:...)");
        const bool negated = next("^");
        in_brackets = true;
        bool any = false;
        while (!next("]")) {
            if (at < end && *at == '[') refuse("brackets in brackets");
            if (next("&&")) refuse("an intersection");
            const char32_t first = next("\\") ? parse_escape(set) : take_single(set);
            any = true;
            if (end - at >= 2 && *at == '-' && at[1] != ']') {
                ++at;
                CharacterSet unused;
                const char32_t last = next("\\") ? parse_escape(unused) : take();
                if (first == invalid || last == invalid || last < first) refuse("a bad range");
                set.add(first, last);
            }
        }
        if (!any) refuse("empty brackets");
        in_brackets = false;
        if (negated) set.negate();
    }
    char32_t take_single(CharacterSet& set) {
        const char32_t code = take();
        set.add(code, code);
        return code;
    }

    // --- Nodes ---

    int32_t add(Pattern::Node node) {
        out.nodes.push_back(std::move(node));
        if (out.nodes.size() > 10000) refuse("it is too long");
        return int32_t(out.nodes.size()) - 1;
    }

    int32_t emit(const Sequence& sequence, int32_t next_node) {
        for (auto item = sequence.rbegin(); item != sequence.rend(); ++item)
            next_node = emit(*item, next_node);
        return next_node;
    }

    int32_t emit(const Item& item, int32_t next_node) {
        Pattern::Node node;
        node.kind = item.kind;
        node.set = item.set;
        node.least = item.least;
        node.most = item.most;
        node.mode = item.mode;
        node.negative = item.negative;
        node.next = next_node;
        if (item.kind == Kind::look_ahead) {
            Item inner;
            inner.kind = Kind::group;
            inner.alternatives = item.alternatives;
            node.alternatives = {emit(inner, add({}))};
        } else if (item.kind == Kind::group) {
            for (const Sequence& sequence : item.alternatives) {
                node.alternatives.push_back(emit(sequence, next_node));
                node.beginnings.push_back(beginnings(node.alternatives.back()));
            }
        }
        return add(std::move(node));
    }

    // How a match of the nodes from `index` on may begin.
    Pattern::Beginnings beginnings(int32_t index) const {
        const Pattern::Node& node = out.nodes[size_t(index)];
        Pattern::Beginnings found;
        if (node.kind == Kind::accept) return found.set(Pattern::empty_match);
        if (node.kind == Kind::look_ahead) return beginnings(node.next);
        if (node.kind == Kind::set)
            for (size_t byte = 0; byte < 256; ++byte)
                found[byte] = byte >= 128 || node.set.contains(char32_t(byte));
        for (const auto& alternative : node.beginnings) found |= alternative;
        if (node.least == 0) found |= beginnings(node.next);
        return found;
    }

    Pattern& out;
    const std::string& source;
    const char *at, *end;
    bool ignores_case = false, in_brackets = false;
};

Pattern::Pattern(const std::string& source) { PatternCompiler(*this, source).compile(); }

}  // namespace nn::text
