// Runs the expressions of pattern.h: backtracking over nodes, with a stack of its own. Only what
// looks around and atomic groups call run(), so the depth is limited by the expression.
#include "engine/text/pattern.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/text/unicode.h"

namespace nn::text {

void Pattern::begin_search(std::string_view text) const {
    begin = text.data();
    end = begin + text.size();
    retries.clear();
    most_work = work + 100'000'000 + 100 * int64_t(text.size());
}

void Pattern::check_work() const {
    constexpr int64_t interval = 1 << 16;
    constexpr size_t most_retries = (1 << 21) - interval;  // 50 MB, until the next check
    work += interval - left;
    left = interval;
    check_interrupt();
    const bool fits = retries.size() <= most_retries;
    if (fits && work <= most_work) return;
    fail(
        "the regular expression '%s' %s for a text of %lld bytes; split the text into shorter ones",
        source.c_str(), fits ? "takes too long" : "needs more than 50 MB",
        static_cast<long long>(end - begin));
}

// The end of the character at `at`; nullptr if the set does not contain it.
inline const char* Pattern::behind(const CharacterSet& set, const char* at) const {
    if (at >= end) return nullptr;
    if (uint8_t(*at) < 128) return set.contains_ascii(uint8_t(*at)) ? at + 1 : nullptr;
    const Character c = decode(at, end);
    return set.contains(c.code) ? at + c.length : nullptr;
}

// Whether a repeated set that ends at `last` may end earlier too.
inline bool Pattern::shortens(const Node& node, const char* first, const char* last) const {
    if (last == first) return false;
    return node.most > 1 || node.following[no_byte] || node.following[uint8_t(*first)];
}

// The last end of a repeated set, not behind `last`, at which what follows may begin.
const char* Pattern::shortened(const Node& node, const char* first, const char* last) const {
    if (node.following[no_byte]) return last;
    while (last == end || !node.following[uint8_t(*last)]) {
        if (last == first) return nullptr;
        last -= decode_before(first, last).length;
        spend(1);
    }
    return last;
}

inline bool Pattern::begin_repeated(const Node& node, int32_t index, const char*& at) const {
    const char* first = at;  // behind the least number of repetitions
    spend(node.least);
    for (int32_t i = 0; i < node.least; ++i)
        if (!(first = behind(*node.set, first))) return false;
    const char* last = first;
    if (node.mode == Mode::lazy) {
        Retry retry{index, first, {}};
        retry.count = node.least;
        retries.push_back(retry);
    } else {
        for (int32_t count = node.least; count < node.most; ++count) {
            const char* const next = behind(*node.set, last);
            if (!next) break;
            last = next;
        }
        spend(last - first);
        if (node.mode == Mode::greedy && nodes[size_t(node.next)].kind != Kind::accept) {
            last = shortened(node, first, last);
            if (!last) return false;
            if (shortens(node, first, last)) retries.push_back({index, last, {first}});
        }
    }
    at = last;
    return true;
}

inline bool Pattern::choose(int32_t& index, const char* at, uint64_t to_try) const {
    if (!to_try) return false;
    const uint64_t others = to_try & (to_try - 1);
    if (others) {
        Retry retry{index, at, {}};
        retry.to_try = others;
        retries.push_back(retry);
    }
    index = nodes[size_t(index)].alternatives[size_t(__builtin_ctzll(to_try))];
    return true;
}

bool Pattern::is_at(PatternItem::Kind anchor, const char* at) const {
    using Anchor = PatternItem::Kind;
    switch (anchor) {
        case Anchor::line_begin: return at == begin || (at[-1] == '\n' && at < end);
        case Anchor::line_end: return at == end || *at == '\n';
        case Anchor::text_begin: return at == begin;
        case Anchor::text_end: return at == end;
        case Anchor::last_line_end: return at == end || (*at == '\n' && at + 1 == end);
        default: break;
    }
    const bool before = at > begin && words->contains(decode_before(begin, at).code);
    return (before != (at < end && words->contains(decode(at, end).code))) ==
           (anchor == Anchor::word_edge);
}

bool Pattern::looks(const Node& node, const char* at) const {
    if (node.kind == Kind::look_behind) {
        for (int32_t i = 0; i < node.least; ++i) {
            if (at == begin) return node.negative;
            at -= decode_before(begin, at).length;
        }
    }
    return (run(node.alternatives[0], at) != nullptr) != node.negative;
}

bool Pattern::retry(int32_t& index, const char*& at) const {
    spend(1);
    const Retry last = retries.back();
    retries.pop_back();
    const Node& node = nodes[size_t(last.node)];
    index = last.node;
    at = last.at;
    if (node.kind == Kind::choice) return choose(index, at, last.to_try);
    index = node.next;
    if (node.mode == Mode::lazy) {
        if (last.count == node.most || !(at = behind(*node.set, at))) return false;
        Retry next{last.node, at, {}};
        next.count = last.count + 1;
        retries.push_back(next);
        return true;
    }
    at = shortened(node, last.first, at - decode_before(last.first, at).length);
    if (!at) return false;
    if (shortens(node, last.first, at)) retries.push_back({last.node, at, {last.first}});
    return true;
}

const char* Pattern::run(int32_t index, const char* at) const {
    const size_t base = retries.size();
    for (;;) {
        const Node& node = nodes[size_t(index)];
        const int32_t here = std::exchange(index, node.next);
        bool holds = true;
        spend(1);
        switch (node.kind) {
            case Kind::accept: retries.resize(base); return at;
            case Kind::set: holds = (at = behind(*node.set, at)) != nullptr; break;
            case Kind::repeated_set: holds = begin_repeated(node, here, at); break;
            case Kind::choice:
                index = here;
                holds = choose(index, at, node.to_try[at < end ? uint8_t(*at) : no_byte]);
                break;
            case Kind::anchor: holds = is_at(node.anchor, at); break;
            case Kind::look_ahead:
            case Kind::look_behind: holds = looks(node, at); break;
            case Kind::atomic: holds = (at = run(node.alternatives[0], at)) != nullptr;
        }
        while (!holds) {
            if (retries.size() == base) return nullptr;
            holds = retry(index, at);
        }
    }
}

// Where to search on after no match begins at `at`. If the expression begins with any number of
// characters of a set, none begins before the next character outside the set either.
const char* Pattern::behind_failure(const char* at) const {
    const Node& node = nodes[size_t(start)];
    const char* next = at + decode(at, end).length;
    if (node.kind != Kind::repeated_set || node.most != INT_MAX) return next;
    while (const char* const stop = behind(*node.set, at)) at = stop;
    spend(at - next);
    return std::max(at, next);
}

}  // namespace nn::text
