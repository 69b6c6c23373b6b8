// UTF-8 for the tokenizers. Any bytes are text: a byte that begins no valid character is a
// character of its own with the code `invalid`.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace nn::text {

constexpr char32_t invalid = 0x110000;
constexpr size_t codes = 0x110001;  // entries of a table that has one per code

struct Character {
    char32_t code;
    int length;  // in bytes
};

// The character at `at`, which is before `end`. Overlong forms, surrogates and codes above U+10FFFF
// are invalid (The Unicode Standard, table 3-7).
inline Character decode(const char* at, const char* end) {
    const auto byte = [at](int i) { return uint8_t(at[i]); };
    const uint8_t a = byte(0);
    if (a < 0x80) return {a, 1};
    const int length = a < 0xC2 ? 0 : a < 0xE0 ? 2 : a < 0xF0 ? 3 : a < 0xF5 ? 4 : 0;
    if (length == 0 || end - at < length) return {invalid, 1};
    char32_t code = a & (0x7F >> length);
    for (int i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return {invalid, 1};
        code = code << 6 | (byte(i) & 0x3F);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {invalid, 1};
    return {code, length};
}

// The character before `at`, which is after `begin`.
inline Character decode_before(const char* begin, const char* at) {
    for (int length = 1; length <= 4 && at - begin >= length; ++length) {
        const Character c = decode(at - length, at);
        if (c.length == length && (c.code != invalid)) return c;
        if ((uint8_t(at[-length]) & 0xC0) != 0x80) break;
    }
    return {invalid, 1};
}

inline void append(std::string& out, char32_t code) {
    if (code < 0x80) {
        out += char(code);
        return;
    }
    if (code < 0x800) {
        out += char(0xC0 | code >> 6);
    } else {
        if (code < 0x10000) {
            out += char(0xE0 | code >> 12);
        } else {
            out += char(0xF0 | code >> 18);
            out += char(0x80 | (code >> 12 & 0x3F));
        }
        out += char(0x80 | (code >> 6 & 0x3F));
    }
    out += char(0x80 | (code & 0x3F));
}

// Calls each(character, its bytes) for all characters.
template <class F> void each_character(std::string_view text, F each) {
    const char *at = text.data(), *const end = at + text.size();
    while (at < end) {
        const Character c = decode(at, end);
        each(c.code, std::string_view(at, size_t(c.length)));
        at += c.length;
    }
}

}  // namespace nn::text
