// Reads the tables of unicode.h.
#include "engine/text/unicode.h"

#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace nn::text {

namespace {

const char* const names[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                             "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                             "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
constexpr int unassigned = 29, other_symbol = 21;

int category_index(const char* name) {
    for (int i = 0; i < 30; ++i)
        if (name[0] == names[i][0] && name[1] == names[i][1]) return i;
    fail("a table of Unicode has the unknown category '%.2s'", name);
}

// Reads the parts of a table: numbers and the characters between them.
class Reader {
public:
    explicit Reader(const std::string& text) : at(text.c_str()) { skip(); }
    bool more() const { return *at != 0; }
    bool next(char c) {  // whether the next character is c; takes it
        if (*at != c) return false;
        ++at;
        return true;
    }
    const char* take(int count) {
        if (std::strlen(at) < size_t(count)) bad();
        at += count;
        return at - count;
    }
    long number() {
        char* stop;
        const long value = std::strtol(at, &stop, 16);
        if (stop == at || value > 0x110000 || value < -0x110000) bad();
        at = stop;
        return value;
    }
    char32_t code() {
        const long value = number();
        if (value < 0) bad();
        return char32_t(value);
    }
    // "41-5A" or "41".
    std::pair<char32_t, char32_t> range() {
        const char32_t first = code(), last = next('-') ? code() : first;
        if (last < first || last >= 0x110000) bad();
        return {first, last};
    }
    void skip() {
        while (*at == ' ' || *at == '\n') ++at;
    }
    [[noreturn]] void bad() const { fail("a table of Unicode is damaged at '%.20s'", at); }

private:
    const char* at;
};

template <class F> void each_range(const std::string& text, F each) {
    for (Reader in(text); in.more(); in.skip()) {
        const auto [first, last] = in.range();
        for (char32_t code = first; code <= last; ++code) each(code);
    }
}

// The classes of clusters that do not come from a table.
void fill_clusters(std::vector<uint8_t>& clusters) {
    const auto fill = [&](char32_t first, char32_t last, uint8_t value) {
        std::fill(clusters.begin() + long(first), clusters.begin() + long(last) + 1, value);
    };
    fill('\r', '\r', cr);
    fill('\n', '\n', lf);
    fill(0x200D, 0x200D, zwj);
    fill(0x1F1E6, 0x1F1FF, regional);
    fill(0x1100, 0x115F, hangul_l);
    fill(0xA960, 0xA97C, hangul_l);
    fill(0x1160, 0x11A7, hangul_v);
    fill(0xD7B0, 0xD7C6, hangul_v);
    fill(0x11A8, 0x11FF, hangul_t);
    fill(0xD7CB, 0xD7FB, hangul_t);
    for (char32_t code = 0xAC00; code <= 0xD7A3; ++code)
        clusters[code] = (code - 0xAC00) % 28 ? hangul_lvt : hangul_lv;
}

uint64_t pair_key(char32_t first, char32_t second) { return uint64_t(first) << 32 | second; }

}  // namespace

Unicode::Unicode() { fill_clusters(clusters); }

Unicode& unicode() {
    static Unicode* const instance = new Unicode;
    return *instance;
}

uint32_t Unicode::category_bits(const std::string& name) {
    uint32_t bits = 0;
    for (int i = 0; i < 30; ++i)
        if (name == names[i] || (name.size() == 1 && name[0] == names[i][0])) bits |= 1u << i;
    return bits;
}

void Unicode::set_categories(const std::string& text) {
    size_t code = 0;
    std::fill(categories.begin(), categories.end(), uint8_t(unassigned));
    runs.clear();
    for (Reader in(text); in.more(); in.skip()) {
        const int index = category_index(in.take(2));
        const size_t count = in.code();
        if (code + count > 0x110000) in.bad();
        std::fill_n(categories.begin() + long(code), count, uint8_t(index));
        code += count;
        if (count > 0) runs.emplace_back(char32_t(code - 1), uint8_t(index));
    }
    if (code < invalid) runs.emplace_back(invalid - 1, uint8_t(unassigned));
    categories[invalid] = other_symbol;
    runs.emplace_back(invalid, uint8_t(other_symbol));
}

void Unicode::set_lower(const std::string& text) {
    for (Reader in(text); in.more(); in.skip()) {
        const auto [first, last] = in.range();
        if (!in.next(':')) in.bad();
        const char32_t step = in.code();
        if (step == 0 || !in.next(':')) in.bad();
        const long distance = in.number();
        for (char32_t code = first; code <= last; code += step) {
            if (long(code) + distance < 0 || long(code) + distance > 0x10FFFF) in.bad();
            lower_of[code] = char32_t(long(code) + distance);
            flags[code] |= upper;
        }
    }
}

void Unicode::set_classes(const std::string& text) {
    for (Reader in(text); in.more(); in.skip()) {
        const auto [first, last] = in.range();
        if (!in.next('=')) in.bad();
        const long number = in.number();
        for (char32_t code = first; code <= last; ++code) {
            classes[code] = uint8_t(number);
            flags[code] |= unstable_c | unstable_d | unstable_kc | unstable_kd;
        }
    }
}

void Unicode::set_mapping(const std::string& text, bool compatible) {
    const uint16_t changes = compatible ? unstable_kc | unstable_kd : unstable_d | unstable_kd;
    auto& map = compatible ? compatible_only : canonical;
    const auto put = [&](char32_t code, const std::u32string& value) {
        if (code >= 0x110000) fail("a table of Unicode maps a code above U+10FFFF");
        map[code] = value;
        flags[code] |= changes;
    };
    char32_t code = 0;
    for (Reader in(text); in.more(); in.skip()) {
        if (in.next('@')) {
            const auto [first, last] = in.range();
            in.skip();
            code = first;
            if (last > first) {
                const char32_t value = in.code();
                for (; code <= last; ++code) put(code, {value + (code - first)});
                continue;
            }
        }
        std::u32string value{in.code()};
        while (in.next('+')) value += in.code();
        put(code++, value);
    }
}

// Derives the pairs that compose from the canonical decompositions: of a text of more than two
// characters, all but the last compose too.
void Unicode::set_composed(const std::string& excluded) {
    std::unordered_map<char32_t, bool> left_out;
    each_range(excluded, [&](char32_t code) {
        left_out[code] = true;
        flags[code] |= unstable_c | unstable_kc;
    });
    for (size_t length = 2; length <= 4; ++length) {
        for (const auto& [code, parts] : canonical) {
            if (parts.size() != length || left_out.count(code)) continue;
            char32_t first = parts[0];
            for (size_t i = 1; first && i + 1 < length; ++i) first = composed(first, parts[i]);
            if (!first) continue;
            pairs[pair_key(first, parts.back())] = code;
            flags[parts.back()] |= unstable_c | unstable_kc;
        }
    }
    for (char32_t code = 0x1161; code <= 0x11C2; ++code)
        if (code <= 0x1175 || code >= 0x11A8) flags[code] |= unstable_c | unstable_kc;
    for (char32_t code = 0xAC00; code <= 0xD7A3; ++code) flags[code] |= unstable_d | unstable_kd;
}

const std::u32string* Unicode::decomposition(char32_t code, bool compatible) const {
    if (compatible) {
        const auto found = compatible_only.find(code);
        if (found != compatible_only.end()) return &found->second;
    }
    const auto found = canonical.find(code);
    return found == canonical.end() ? nullptr : &found->second;
}

char32_t Unicode::composed(char32_t first, char32_t second) const {
    if (first >= 0x1100 && first < 0x1113 && second >= 0x1161 && second < 0x1176)
        return 0xAC00 + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
    if (first >= 0xAC00 && first <= 0xD7A3 && (first - 0xAC00) % 28 == 0 && second > 0x11A7 &&
        second < 0x11C3)
        return first + (second - 0x11A7);
    const auto found = pairs.find(pair_key(first, second));
    return found == pairs.end() ? 0 : found->second;
}

void Unicode::set_flags(const std::string& text, uint16_t property) {
    each_range(text, [&](char32_t code) { flags[code] |= property; });
}

void Unicode::set_cluster(const std::string& text, uint8_t value) {
    each_range(text, [&](char32_t code) {
        const bool is_class = !(value & (linker | consonant));  // those two go with any class
        if (!is_class || (clusters[code] & cluster_mask) == other) clusters[code] |= value;
    });
}

void Unicode::set_script(const std::string& name, const std::string& text) {
    scripts[name].clear();
    for (Reader in(text); in.more(); in.skip()) scripts[name].push_back(in.range());
}

void Unicode::set(const std::string& name, const std::string& text) {
    static const std::unordered_map<std::string, uint16_t> properties = {
        {"word", word},       {"numeric", numeric},       {"punctuation", punctuation},
        {"control", control}, {"nonspacing", nonspacing}, {"combining", combining}};
    static const std::unordered_map<std::string, uint8_t> cluster_names = {
        {"cluster_control", cluster_control},
        {"extend", extend},
        {"prepend", prepend},
        {"spacing", spacing},
        {"pictographic", pictographic},
        {"linker", linker},
        {"consonant", consonant}};
    if (const auto p = properties.find(name); p != properties.end())
        return set_flags(text, p->second);
    if (const auto c = cluster_names.find(name); c != cluster_names.end())
        return set_cluster(text, c->second);
    if (name == "categories") return set_categories(text);
    if (name == "lower") return set_lower(text);
    if (name == "classes") return set_classes(text);
    if (name == "canonical") return set_mapping(text, false);
    if (name == "compatible") return set_mapping(text, true);
    if (name == "excluded") return set_composed(text);
    if (name.rfind("script_", 0) == 0) return set_script(name.substr(7), text);
    fail("there is no table '%s' of Unicode", name.c_str());
}

}  // namespace nn::text
