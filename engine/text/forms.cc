// Normalization forms (Unicode Standard Annex 15), by the tables of unicode.h. Most text is stable:
// it is copied, and only the characters around one that may change are decomposed and composed.
#include "engine/text/forms.h"

#include <algorithm>
#include <vector>

#include "engine/text/unicode.h"

namespace nn::text {

namespace {

struct Mark {
    char32_t code;
    uint8_t combining_class;
};

// Normalizes single stretches of text.
class Stretch {
public:
    Stretch(Form form, const Unicode& table)
        : composes(form == Form::c || form == Form::kc),
          compatible(form == Form::kc || form == Form::kd),
          unicode(table) {}

    void normalize(std::string_view text, std::string& out) {
        marks.clear();
        each_character(text, [&](char32_t code, std::string_view) { decompose(code); });
        order();
        if (composes) compose();
        for (const Mark& mark : marks) append(out, mark.code);
    }

private:
    void put(char32_t code) { marks.push_back({code, unicode.combining_class(code)}); }

    void decompose(char32_t code) {
        if (code >= 0xAC00 && code <= 0xD7A3) {
            const char32_t index = code - 0xAC00;
            put(0x1100 + index / 588);
            put(0x1161 + index % 588 / 28);
            if (index % 28) put(0x11A7 + index % 28);
        } else if (const std::u32string* parts = unicode.decomposition(code, compatible)) {
            for (const char32_t part : *parts) put(part);
        } else {
            put(code);
        }
    }

    // Sorts marks between characters of class 0 by their classes.
    void order() {
        const auto by_class = [](const Mark& a, const Mark& b) {
            return a.combining_class < b.combining_class;
        };
        for (auto at = marks.begin(); at != marks.end();) {
            if (at->combining_class == 0) {
                ++at;
                continue;
            }
            const auto stop =
                std::find_if(at, marks.end(), [](const Mark& m) { return !m.combining_class; });
            std::stable_sort(at, stop, by_class);
            at = stop;
        }
    }

    void compose() {
        size_t count = 0;
        long starter = -1;
        int last = -1;  // the class of the last mark since the starter; -1: none
        for (const Mark mark : marks) {
            const bool blocked = last >= 0 && last >= mark.combining_class;
            const char32_t code = starter >= 0 && !blocked
                                      ? unicode.composed(marks[size_t(starter)].code, mark.code)
                                      : 0;
            if (code) {
                marks[size_t(starter)].code = code;
                continue;
            }
            if (mark.combining_class == 0) {
                starter = long(count);
                last = -1;
            } else {
                last = mark.combining_class;
            }
            marks[count++] = mark;
        }
        marks.resize(count);
    }

    const bool composes, compatible;
    const Unicode& unicode;
    std::vector<Mark> marks;
};

uint16_t unstable(Form form) {
    switch (form) {
        case Form::c: return unstable_c;
        case Form::d: return unstable_d;
        case Form::kc: return unstable_kc;
        default: return unstable_kd;
    }
}

}  // namespace

void normalize(std::string_view text, Form form, std::string& out) {
    const Unicode& table = unicode();
    const uint16_t property = unstable(form);
    Stretch stretch(form, table);
    const char *const end = text.data() + text.size(), *at = text.data();
    const char *copied = at, *before = at;  // before: the previous character
    while (at < end) {
        const Character c = decode(at, end);
        if (!table.has(c.code, property)) {
            before = at;
            at += c.length;
            continue;
        }
        // A composed form may change the previous character too.
        const bool composes = form == Form::c || form == Form::kc;
        const char* const first = composes && decode(before, end).code != invalid ? before : at;
        out.append(copied, size_t(first - copied));
        const char* stop = at;
        for (Character next = c; stop < end && table.has(next.code, property);) {
            stop += next.length;
            if (stop < end) next = decode(stop, end);
        }
        stretch.normalize({first, size_t(stop - first)}, out);
        copied = before = at = stop;
    }
    out.append(copied, size_t(end - copied));
}

// --- Clusters ---

namespace {

// Whether a boundary lies before `next`, of which the rules need only what came before.
struct Boundary {
    uint8_t before;
    bool pictograph;  // a pictograph, then marks (rule GB11)
    bool conjunct;    // a consonant, then marks with a linker (rule GB9c)
    bool linked;
    bool odd_regional;  // rules GB12 and GB13

    explicit Boundary(uint8_t first)
        : before(first),
          pictograph((first & cluster_mask) == pictographic),
          conjunct(first & consonant),
          linked(false),
          odd_regional((first & cluster_mask) == regional) {}

    bool joins(uint8_t next) const {
        const int a = before & cluster_mask, b = next & cluster_mask;
        if (a == cr && b == lf) return true;
        if (a == cr || a == lf || a == cluster_control) return false;
        if (b == cr || b == lf || b == cluster_control) return false;
        if (a == hangul_l)
            if (b == hangul_l || b == hangul_v || b == hangul_lv || b == hangul_lvt) return true;
        if ((a == hangul_lv || a == hangul_v) && (b == hangul_v || b == hangul_t)) return true;
        if ((a == hangul_lvt || a == hangul_t) && b == hangul_t) return true;
        if (b == extend || b == zwj || b == spacing || a == prepend) return true;
        if (linked && (next & consonant)) return true;
        if (a == zwj && pictograph && b == pictographic) return true;
        return a == regional && odd_regional && b == regional;
    }

    void take(uint8_t next, char32_t code) {
        const int b = next & cluster_mask;
        const bool mark = (b == extend || b == zwj) && code != 0x200C;
        odd_regional = b == regional && !odd_regional;
        pictograph = b == pictographic ||
                     (pictograph && (b == extend || b == zwj) && (before & cluster_mask) != zwj);
        conjunct = (next & consonant) || (conjunct && mark);
        linked = !(next & consonant) && conjunct && (linked || (next & linker));
        before = next;
    }
};

}  // namespace

size_t cluster_length(std::string_view text) {
    const Unicode& table = unicode();
    const char *const end = text.data() + text.size(), *at = text.data();
    const Character first = decode(at, end);
    Boundary boundary(table.cluster(first.code));
    for (at += first.length; at < end;) {
        const Character c = decode(at, end);
        const uint8_t next = table.cluster(c.code);
        if (!boundary.joins(next)) break;
        boundary.take(next, c.code);
        at += c.length;
    }
    return size_t(at - text.data());
}

}  // namespace nn::text
