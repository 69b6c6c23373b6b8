// The normalizers of tokenizer.json, equal to those of the library tokenizers.
#include <vector>

#include "engine/base/error.h"
#include "engine/text/charsmap.h"
#include "engine/text/forms.h"
#include "engine/text/pattern.h"
#include "engine/text/steps.h"
#include "engine/text/unicode.h"

namespace nn::text {

namespace {

class Normalization : public Normalizer {
public:
    explicit Normalization(Form form) : form(form) {}
    void apply(std::string_view text, std::string& out, bool&) const override {
        normalize(text, form, out);
    }

private:
    const Form form;
};

class Lowercase : public Normalizer {
public:
    void apply(std::string_view text, std::string& out, bool&) const override {
        const Unicode& table = unicode();
        each_character(text, [&](char32_t code, std::string_view bytes) {
            if (code == 0x130) {  // the only one whose lower case has two characters
                out += "i\u0307";
            } else if (code < 128) {
                out += code >= 'A' && code <= 'Z' ? char(code + 32) : char(code);
            } else if (table.has(code, upper)) {
                append(out, table.lower(code));
            } else {
                out += bytes;
            }
        });
    }
};

// Removes the characters with a property.
class Without : public Normalizer {
public:
    explicit Without(uint16_t property) : property(property) {}
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        const Unicode& table = unicode();
        const size_t first = out.size();
        each_character(text, [&](char32_t code, std::string_view bytes) {
            if (!table.has(code, property)) {
                out += bytes;
            } else if (out.size() == first) {
                begins = false;
            }
        });
    }

private:
    const uint16_t property;
};

// White space becomes spaces, and other control characters go.
class BertClean : public Normalizer {
public:
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        const Unicode& table = unicode();
        const size_t first = out.size();
        each_character(text, [&](char32_t code, std::string_view bytes) {
            if (table.has(code, control)) {
                if (out.size() == first) begins = false;
            } else if (is_space(code)) {
                out += ' ';
            } else {
                out += bytes;
            }
        });
    }
};

bool is_chinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class SpaceChinese : public Normalizer {
public:
    void apply(std::string_view text, std::string& out, bool&) const override {
        each_character(text, [&](char32_t code, std::string_view bytes) {
            const bool spaced = is_chinese(code);
            if (spaced) out += ' ';
            out += bytes;
            if (spaced) out += ' ';
        });
    }
};

class Nmt : public Normalizer {
public:
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        const size_t first = out.size();
        each_character(text, [&](char32_t c, std::string_view bytes) {
            const bool removed = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) ||
                                 c == 0x7F || c == 0x8F || c == 0x9F;
            const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                               (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                               c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
            if (removed) {
                if (out.size() == first) begins = false;
            } else if (space) {
                out += ' ';
            } else {
                out += bytes;
            }
        });
    }
};

class Strip : public Normalizer {
public:
    explicit Strip(int32_t sides) : left(sides & 1), right(sides & 2) {}
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        const char *first = text.data(), *last = first + text.size();
        while (left && first < last) {
            const Character c = decode(first, last);
            if (!is_space(c.code)) break;
            first += c.length;
            begins = false;
        }
        while (right && first < last) {
            const Character c = decode_before(first, last);
            if (!is_space(c.code)) break;
            last -= c.length;
        }
        out.append(first, size_t(last - first));
    }

private:
    const bool left, right;
};

class Prepend : public Normalizer {
public:
    explicit Prepend(std::string prefix) : prefix(std::move(prefix)) {}
    void apply(std::string_view text, std::string& out, bool&) const override {
        if (!text.empty()) out += prefix;
        out += text;
    }

private:
    const std::string prefix;
};

class ReplaceText : public Normalizer {
public:
    ReplaceText(std::string from, std::string to) : from(std::move(from)), to(std::move(to)) {
        if (this->from.empty()) fail("Replace: the pattern is empty");
    }
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        if (to.empty() && text.substr(0, from.size()) == from) begins = false;
        for (size_t at = 0;;) {
            const size_t found = text.find(from, at);
            out += text.substr(at, found - at);
            if (found == text.npos) return;
            out += to;
            at = found + from.size();
        }
    }

private:
    const std::string from, to;
};

class ReplacePattern : public Normalizer {
public:
    ReplacePattern(const std::string& from, std::string to) : from(from), to(std::move(to)) {}
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        from.each(text, [&](const char* first, const char* last, bool is_match) {
            if (is_match && to.empty() && first == text.data() && first < last) begins = false;
            if (is_match) {
                out += to;
            } else {
                out.append(first, size_t(last - first));
            }
        });
    }

private:
    const Pattern from;
    const std::string to;
};

class Precompiled : public Normalizer {
public:
    explicit Precompiled(const std::string& blob) : map(blob) {}
    void apply(std::string_view text, std::string& out, bool&) const override {
        map.apply(text, out);
    }

private:
    const CharsMap map;
};

class Chain : public Normalizer {
public:
    void add(std::unique_ptr<Normalizer> step) { steps.push_back(std::move(step)); }
    void apply(std::string_view text, std::string& out, bool& begins) const override {
        std::string now(text), next;
        for (const auto& step : steps) {
            next.clear();
            step->apply(now, next, begins);
            now.swap(next);
        }
        out += now;
    }

private:
    std::vector<std::unique_ptr<Normalizer>> steps;
};

std::unique_ptr<Normalizer> new_bert(int32_t flags) {
    auto chain = std::make_unique<Chain>();
    if (flags & 1) chain->add(std::make_unique<BertClean>());
    if (flags & 2) chain->add(std::make_unique<SpaceChinese>());
    if (flags & 4) {
        chain->add(std::make_unique<Normalization>(Form::d));
        chain->add(std::make_unique<Without>(nonspacing));
    }
    if (flags & 8) chain->add(std::make_unique<Lowercase>());
    return chain;
}

}  // namespace

std::unique_ptr<Normalizer> new_normalizer(const StepSettings& settings) {
    const std::string& kind = settings.kind;
    if (kind == "NFC") return std::make_unique<Normalization>(Form::c);
    if (kind == "NFD") return std::make_unique<Normalization>(Form::d);
    if (kind == "NFKC") return std::make_unique<Normalization>(Form::kc);
    if (kind == "NFKD") return std::make_unique<Normalization>(Form::kd);
    if (kind == "Lowercase") return std::make_unique<Lowercase>();
    if (kind == "StripAccents") return std::make_unique<Without>(combining);
    if (kind == "Nmt") return std::make_unique<Nmt>();
    if (kind == "Strip") return std::make_unique<Strip>(settings.flags);
    if (kind == "Prepend") return std::make_unique<Prepend>(settings.text);
    if (kind == "Precompiled") return std::make_unique<Precompiled>(settings.text);
    if (kind == "BertNormalizer") return new_bert(settings.flags);
    if (kind == "SentencePiece") return new_sentencepiece_normalizer(settings);
    if (kind != "Replace") return nullptr;
    if (settings.flags & 1)
        return std::make_unique<ReplacePattern>(settings.text, settings.content);
    return std::make_unique<ReplaceText>(settings.text, settings.content);
}

}  // namespace nn::text
