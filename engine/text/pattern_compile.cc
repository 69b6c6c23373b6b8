// Compiles the expressions of pattern.h. A sequence is compiled from its end, so that every node
// knows the one that follows it; only a repeated group is known before the nodes in it.
#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/text/pattern.h"

namespace nn::text {

class PatternCompiler {
public:
    PatternCompiler(Pattern& pattern, const std::string& source) : out(pattern), source(source) {}

    void compile() {
        Item all;
        all.kind = PatternItem::Kind::group;
        all.alternatives = parse_pattern(source);
        out.start = emit_once(all, add({}));
        known.resize(out.nodes.size());
        for (Pattern::Node& node : out.nodes) {
            if (node.kind == Kind::repeated_set) node.following = beginnings(node.next);
            if (node.kind == Kind::choice) fill_choice(node);
        }
    }

private:
    using Item = PatternItem;
    using Kind = Pattern::Kind;
    using Mode = Pattern::Mode;

    [[noreturn]] void refuse(const char* why) const {
        fail("the regular expression '%s' is not supported: %s", source.c_str(), why);
    }

    int32_t add(Pattern::Node node) {
        check_interrupt();
        out.nodes.push_back(std::move(node));
        if (out.nodes.size() > 10000) refuse("it is too long");
        return int32_t(out.nodes.size()) - 1;
    }

    const CharacterSet* shared(const Ranges& ranges) {
        return &out.sets.try_emplace(ranges, ranges).first->second;
    }

    static bool may_be_empty(const Item::Sequence& sequence) {
        return std::all_of(sequence.begin(), sequence.end(), [](const Item& item) {
            if (item.least == 0) return true;
            if (item.kind == Item::Kind::set) return false;
            return item.kind != Item::Kind::group || may_be_empty(item.alternatives);
        });
    }
    static bool may_be_empty(const std::vector<Item::Sequence>& alternatives) {
        return std::any_of(alternatives.begin(), alternatives.end(),
                           [](const Item::Sequence& s) { return may_be_empty(s); });
    }

    int32_t emit(const Item::Sequence& sequence, int32_t next) {
        for (auto item = sequence.rbegin(); item != sequence.rend(); ++item)
            next = emit(*item, next);
        return next;
    }

    int32_t emit(const Item& item, int32_t next) {
        // Copies of empty groups add no nodes.
        if (++emitted > 100000) refuse("it is too long");
        if (item.kind == Item::Kind::group && item.mode == Mode::possessive)
            return emit_apart(Kind::atomic, emit_group(item, add({}), Mode::greedy), next);
        if (item.kind == Item::Kind::group) return emit_group(item, next, item.mode);
        if (item.kind == Item::Kind::look_ahead || item.kind == Item::Kind::look_behind)
            return emit_look(item, next);
        Pattern::Node node;
        node.kind = Kind::anchor;
        node.anchor = item.kind;
        node.next = next;
        const bool edge =
            item.kind == Item::Kind::word_edge || item.kind == Item::Kind::no_word_edge;
        if (edge && !out.words) out.words = shared(ranges_of_words(false));
        if (item.kind == Item::Kind::set) {
            node.kind = item.least == 1 && item.most == 1 ? Kind::set : Kind::repeated_set;
            node.set = shared(item.set);
            node.least = item.least;
            node.most = item.most;
            node.mode = item.mode;
        }
        return add(std::move(node));
    }

    int32_t emit_apart(Kind kind, int32_t inner, int32_t next) {
        Pattern::Node node;
        node.kind = kind;
        node.next = next;
        node.alternatives = {inner};
        return add(std::move(node));
    }

    int32_t emit_look(const Item& item, int32_t next) {
        const bool ahead = item.kind == Item::Kind::look_ahead;
        const int32_t first = emit_once(item, add({}));
        const int32_t index = emit_apart(ahead ? Kind::look_ahead : Kind::look_behind, first, next);
        out.nodes[size_t(index)].negative = item.negative;
        if (!ahead) out.nodes[size_t(index)].least = characters_behind(item);
        return index;
    }

    int32_t characters_behind(const Item& item) const {
        size_t count = 0;
        for (const Item::Sequence& sequence : item.alternatives) {
            if (&sequence == &item.alternatives[0]) count = sequence.size();
            const bool simple = std::all_of(sequence.begin(), sequence.end(), [](const Item& i) {
                return i.kind == Item::Kind::set && i.least == 1 && i.most == 1;
            });
            if (!simple || sequence.size() != count) refuse("a variable-length look-behind");
        }
        return int32_t(count);
    }

    // The first nodes of a group's alternatives.
    std::vector<int32_t> emit_alternatives(const Item& group, int32_t next) {
        std::vector<int32_t> first;
        for (const Item::Sequence& sequence : group.alternatives)
            first.push_back(emit(sequence, next));
        return first;
    }

    int32_t emit_once(const Item& group, int32_t next) {
        return choice_of(emit_alternatives(group, next));
    }

    // A choice holds 64 alternatives; the last may be the choice of the others.
    int32_t choice_of(std::vector<int32_t> alternatives) {
        while (alternatives.size() > 64) {
            const size_t kept = alternatives.size() - 64;
            const int32_t tail = choice_of({alternatives.begin() + long(kept), alternatives.end()});
            alternatives.resize(kept);
            alternatives.push_back(tail);
        }
        if (alternatives.size() == 1) return alternatives[0];
        Pattern::Node node;
        node.kind = Kind::choice;
        node.alternatives = std::move(alternatives);
        return add(std::move(node));
    }

    // Of a group or what follows it, the one to try first comes first.
    static std::vector<int32_t> with_next(std::vector<int32_t> first, int32_t next, Mode mode) {
        first.insert(mode == Mode::lazy ? first.begin() : first.end(), next);
        return first;
    }

    int32_t emit_group(const Item& group, int32_t next, Mode mode) {
        // Engines differ in where such a repetition ends.
        if (group.most > 1 && may_be_empty(group.alternatives))
            refuse("a repeated group that may match the empty text");
        int32_t entry = next, copies = group.least;
        if (group.most == INT_MAX) {
            const int32_t loop = add({});
            const int32_t body = emit_once(group, loop);
            out.nodes[size_t(loop)].kind = Kind::choice;
            out.nodes[size_t(loop)].alternatives = with_next({body}, next, mode);
            entry = copies == 0 ? loop : body;
            copies = std::max(0, copies - 1);
        } else {
            for (int32_t i = group.least; i < group.most; ++i)
                entry = choice_of(with_next(emit_alternatives(group, entry), next, mode));
        }
        for (int32_t i = 0; i < copies; ++i) entry = emit_once(group, entry);
        return entry;
    }

    void fill_choice(Pattern::Node& node) {
        node.to_try.assign(Pattern::no_byte + 1, 0);
        for (size_t i = 0; i < node.alternatives.size(); ++i) {
            const Pattern::Beginnings& begins = beginnings(node.alternatives[i]);
            for (size_t byte = 0; byte <= Pattern::no_byte; ++byte)
                if (begins[byte] || begins[Pattern::no_byte]) node.to_try[byte] |= uint64_t(1) << i;
        }
    }

    // How a match of the nodes from `index` on may begin. Every way back to a node takes a
    // character, so this ends.
    const Pattern::Beginnings& beginnings(int32_t index) {
        if (known[size_t(index)]) return *known[size_t(index)];
        const Pattern::Node& node = out.nodes[size_t(index)];
        Pattern::Beginnings found;
        if (node.kind == Kind::accept || node.kind == Kind::atomic) found.set(Pattern::no_byte);
        if (node.set)
            for (size_t byte = 0; byte < 256; ++byte) found[byte] = node.set->first_bytes()[byte];
        if (node.kind == Kind::choice)
            for (const int32_t alternative : node.alternatives) found |= beginnings(alternative);
        const bool passes = node.kind == Kind::anchor || node.kind == Kind::look_ahead ||
                            node.kind == Kind::look_behind || (node.set && node.least == 0);
        if (passes) found |= beginnings(node.next);
        return *(known[size_t(index)] = found);
    }

    Pattern& out;
    const std::string& source;
    int32_t emitted = 0;  // items
    std::vector<std::optional<Pattern::Beginnings>> known;
};

Pattern::Pattern(const std::string& source) : source(source) {
    PatternCompiler(*this, source).compile();
}

}  // namespace nn::text
