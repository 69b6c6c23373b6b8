// Runs the expressions of pattern.h: backtracking over nodes. Only a node with alternatives or
// repetitions calls itself for what follows, so the depth is limited by the expression.
#include "engine/text/pattern.h"

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/text/unicode.h"

namespace nn::text {

bool CharacterSet::contains_other(char32_t code) const {
    const uint32_t bit = 1u << unicode().category(code);
    bool inside = categories & bit;
    for (const auto& [first, last] : ranges) inside = inside || (code >= first && code <= last);
    return inside != negated;
}

void CharacterSet::finish() {
    for (char32_t code = 0; code < 128; ++code) ascii[code] = contains_other(code);
}

void Pattern::check_work() const {
    constexpr int64_t interval = 1 << 16;
    work += interval - left;
    left = interval;
    check_interrupt();
    if (work > most_work)
        fail("a regular expression of the tokenizer takes too long for this text");
}

// A node with a set, and what follows it.
const char* Pattern::run_set(const Node& node, const char* at, const char* end) const {
    const auto step = [&](const char* p) -> const char* {
        if (p >= end) return nullptr;
        const Character c = decode(p, end);
        return node.set.contains(c.code) ? p + c.length : nullptr;
    };
    const char* first = at;  // behind the least number of repetitions
    for (int32_t i = 0; i < node.least; ++i)
        if (!(first = step(first))) return nullptr;
    if (node.mode == Mode::lazy) {
        for (int32_t count = node.least;; ++count) {
            if (const char* stop = run(node.next, first, end)) return stop;
            if (count == node.most || !(first = step(first))) return nullptr;
        }
    }
    const char* last = first;
    for (int32_t count = node.least; count < node.most; ++count) {
        const char* const next = step(last);
        if (!next) break;
        last = next;
    }
    spend(last - at);
    if (node.mode == Mode::possessive) return run(node.next, last, end);
    for (;;) {
        if (const char* stop = run(node.next, last, end)) return stop;
        if (last == first) return nullptr;
        last -= decode_before(first, last).length;
    }
}

const char* Pattern::run(int32_t index, const char* at, const char* end) const {
    spend(1);
    for (;;) {
        const Node& node = nodes[size_t(index)];
        switch (node.kind) {
            case Kind::accept: return at;
            case Kind::set:
                if (node.least == 1 && node.most == 1) {
                    if (at >= end) return nullptr;
                    const Character c = decode(at, end);
                    if (!node.set.contains(c.code)) return nullptr;
                    at += c.length;
                    break;
                }
                return run_set(node, at, end);
            case Kind::look_ahead:
                if ((run(node.alternatives[0], at, end) != nullptr) == node.negative)
                    return nullptr;
                break;
            case Kind::group:
                for (size_t i = 0; i < node.alternatives.size(); ++i) {
                    const Beginnings& begins = node.beginnings[i];
                    if (!begins[empty_match] && (at >= end || !begins[uint8_t(*at)])) continue;
                    if (const char* stop = run(node.alternatives[i], at, end)) return stop;
                }
                if (node.least > 0) return nullptr;
        }
        index = node.next;
    }
}

}  // namespace nn::text
