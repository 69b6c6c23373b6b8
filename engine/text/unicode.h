// Properties of code points. The tables come from lua/nn/text as texts, in hexadecimal:
//   ranges      "41-5A 61": code points
//   categories  "Cc20 Zs1": of the code points from 0 on, each with the number of code points
//   lower       "100-12E:2:1": of every second of these, the lower-case letter is 1 further
//   classes     "300-314=E6": combining classes
//   mappings    "@C0 41+300 41+301 @D8-DA 51": of C0 and C1; of D8, D9 and DA 51, 52 and 53
// The table script_NAME has the ranges of a script.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/text/utf8.h"

namespace nn::text {

// Properties, in Unicode::flags.
enum Property : uint16_t {
    word = 1,         // what \w matches
    numeric = 2,      // categories N
    punctuation = 4,  // what BERT takes for punctuation
    control = 8,      // what BERT removes
    nonspacing = 16,  // category Mn
    combining = 32,   // categories M
    upper = 64,       // has a lower-case letter
    unstable_c =
        128,  // may change in the normalization forms NFC, NFD, NFKC, NFKD, alone or behind
    unstable_d = 256,  // another character
    unstable_kc = 512,
    unstable_kd = 1024,
};

// Classes of Unicode Standard Annex 29, with two properties of Indic letters as bits.
enum Cluster : uint8_t {
    other,
    cr,
    lf,
    cluster_control,
    extend,
    zwj,
    regional,
    prepend,
    spacing,
    hangul_l,
    hangul_v,
    hangul_t,
    hangul_lv,
    hangul_lvt,
    pictographic,
    cluster_mask = 0x1F,
    linker = 0x20,
    consonant = 0x40,
};

class Unicode {
public:
    Unicode();
    // Reads a table by its name. Throws Error if the name or the text is wrong.
    void set(const std::string& name, const std::string& text);

    uint8_t category(char32_t code) const { return categories[code]; }  // an index
    // Last codes of runs of the same category, and it.
    const std::vector<std::pair<char32_t, uint8_t>>& category_runs() const { return runs; }
    // The bits of the categories that a name selects: "L", "Lu", ...; 0 for an unknown name.
    static uint32_t category_bits(const std::string& name);
    bool has(char32_t code, uint16_t properties) const { return flags[code] & properties; }
    char32_t lower(char32_t code) const { return has(code, upper) ? lower_of.at(code) : code; }
    uint8_t cluster(char32_t code) const { return clusters[code]; }
    // The ranges of a script by its name in lower case; empty for an unknown one.
    std::vector<std::pair<char32_t, char32_t>> script(const std::string& name) const {
        const auto found = scripts.find(name);
        return found == scripts.end() ? decltype(found->second){} : found->second;
    }
    uint8_t combining_class(char32_t code) const {
        const auto found = classes.find(code);
        return found == classes.end() ? 0 : found->second;
    }
    // The full decomposition; nullptr if there is none. Hangul syllables are not in the table.
    const std::u32string* decomposition(char32_t code, bool compatible) const;
    char32_t composed(char32_t first, char32_t second) const;  // 0 if they do not combine

private:
    void set_categories(const std::string& text);
    void set_lower(const std::string& text);
    void set_classes(const std::string& text);
    void set_mapping(const std::string& text, bool compatible);
    void set_composed(const std::string& excluded);
    void set_flags(const std::string& text, uint16_t property);
    void set_cluster(const std::string& text, uint8_t value);
    void set_script(const std::string& name, const std::string& text);

    // The last entries are for invalid bytes, which are symbols (So).
    std::vector<uint8_t> categories = std::vector<uint8_t>(codes);
    std::vector<std::pair<char32_t, uint8_t>> runs;
    std::vector<uint16_t> flags = std::vector<uint16_t>(codes);
    std::vector<uint8_t> clusters = std::vector<uint8_t>(codes);
    std::unordered_map<char32_t, char32_t> lower_of;
    std::unordered_map<char32_t, uint8_t> classes;
    std::unordered_map<char32_t, std::u32string> canonical, compatible_only;
    std::unordered_map<uint64_t, char32_t> pairs;
    std::unordered_map<std::string, std::vector<std::pair<char32_t, char32_t>>> scripts;
};

Unicode& unicode();  // the one instance; tables are empty until set

constexpr bool is_space(char32_t c) {  // the property White_Space
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

}  // namespace nn::text
