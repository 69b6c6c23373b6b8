// The normalizer and the models of the library sentencepiece (0.2.3), for files tokenizer.model:
// its ids, which those of the library tokenizers for the same vocabulary do not always equal. So
// scores have single precision here, and a map's longest entry wins.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <queue>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/text/charsmap.h"
#include "engine/text/model.h"
#include "engine/text/steps.h"
#include "engine/text/utf8.h"

namespace nn::text {

namespace {

const std::string_view word_mark = "\xE2\x96\x81", replacement_character = "\xEF\xBF\xBD";

// --- The normalizer ---

class SentencePieceNormalizer : public Normalizer {
public:
    explicit SentencePieceNormalizer(const StepSettings& settings)
        : prefix(settings.flags & 1),
          trim(settings.flags & 2),
          space(settings.flags & 4 ? word_mark : " "),
          suffix(settings.flags & 8),
          first_only(settings.flags & 16) {
        if (!settings.text.empty()) map = std::make_unique<CharsMap>(settings.text);
        std::string_view rest = settings.content;
        for (size_t end; (end = rest.find('\0')) != rest.npos; rest.remove_prefix(end + 1))
            kept.add(rest.substr(0, end), 0);
    }

    void apply(std::string_view text, std::string& out, bool& begins) const override {
        const size_t first = out.size();
        size_t length = 0;
        while (trim && !text.empty() && next(text, length) == " ") text.remove_prefix(length);
        if (text.empty()) return;
        const bool added = prefix && (begins || !first_only);
        if (added && !suffix) out += space;
        bool after_space = trim;
        for (int64_t steps = 1; !text.empty(); ++steps) {
            if (steps % (1 << 16) == 0) check_interrupt();
            std::string_view part = next(text, length);
            while (after_space && !part.empty() && part[0] == ' ') part.remove_prefix(1);
            for (const char c : part) c == ' ' ? out += space : out += c;
            if (!part.empty()) after_space = trim && part.back() == ' ';
            text.remove_prefix(length);
        }
        const auto ends = [&] {
            return out.size() - first >= space.size() &&
                   std::string_view(out).substr(out.size() - space.size()) == space;
        };
        while (trim && ends()) out.resize(out.size() - space.size());
        if (added && suffix) out += space;
    }

private:
    // What the first character of a text becomes, or the first entry of the map; `length`: of what
    // it replaces.
    std::string_view next(std::string_view text, size_t& length) const {
        length = 0;
        kept.each_prefix(text, [&](size_t bytes, int32_t) { length = bytes; });
        if (length > 0) return text.substr(0, length);
        if (map) {
            const CharsMap::Entry entry = map->longest(text);
            length = entry.length;
            if (length > 0) return entry.replacement;
        }
        const Character c = decode(text.data(), text.data() + text.size());
        length = size_t(c.length);
        return c.code == invalid ? replacement_character : text.substr(0, length);
    }

    const bool prefix, trim;
    const std::string_view space;
    const bool suffix, first_only;
    std::unique_ptr<const CharsMap> map;
    Trie kept;
};

// --- What both models share ---

class SentencePieceModel : public Model {
public:
    SentencePieceModel(std::shared_ptr<const Vocabulary> tokens, ModelSettings how,
                       const std::vector<double>& given, std::vector<PieceType> their_types)
        : Model(std::move(tokens), std::move(how)),
          scores(given.begin(), given.end()),
          types(std::move(their_types)),
          byte_ids(256, settings.unknown) {
        char name[8];
        for (int32_t id = 0; id < vocabulary->size(); ++id) {
            if (!is(id, PieceType::byte)) continue;
            for (int value = 0; value < 256; ++value) {
                snprintf(name, sizeof name, "<0x%02X>", value);
                if (vocabulary->text(id) == name) byte_ids[size_t(value)] = id;
            }
        }
    }

protected:
    bool is(int32_t id, PieceType type) const { return types[size_t(id)] == type; }
    bool is_searched(int32_t id) const {
        return is(id, PieceType::normal) || is(id, PieceType::user_defined) ||
               is(id, PieceType::unused);
    }

    // Appends a token: neighbouring unknown ones are one, or become their bytes.
    void put(int32_t id, std::string_view text, bool& after_unknown, Ids& out) const {
        const bool is_unknown = id == settings.unknown;
        if (is_unknown && settings.byte_fallback) {
            for (const char c : text) out.push_back(byte_ids[uint8_t(c)]);
        } else if (!is_unknown || !after_unknown) {
            out.push_back(id);
        }
        after_unknown = is_unknown;
    }

    const std::vector<float> scores;
    const std::vector<PieceType> types;

private:
    Ids byte_ids;
};

// --- Unigram ---

class SentencePieceUnigram : public SentencePieceModel {
public:
    SentencePieceUnigram(std::shared_ptr<const Vocabulary> tokens, ModelSettings how,
                         const std::vector<double>& given, std::vector<PieceType> their_types)
        : SentencePieceModel(std::move(tokens), std::move(how), given, std::move(their_types)) {
        float lowest = FLT_MAX;
        for (int32_t id = 0; id < vocabulary->size(); ++id) {
            if (is_searched(id)) trie.add(vocabulary->text(id), id);
            if (is(id, PieceType::normal)) lowest = std::min(lowest, scores[size_t(id)]);
        }
        unknown_score = lowest - 10;
    }

    void encode(std::string_view piece, Ids& out) override {
        search(piece);
        path.clear();
        for (size_t end = piece.size(); end > 0; end = best[end].begin) path.push_back(end);
        bool after_unknown = false;
        for (auto end = path.rbegin(); end != path.rend(); ++end) {
            const Best& last = best[*end];
            put(last.id, piece.substr(last.begin, *end - last.begin), after_unknown, out);
        }
    }

private:
    struct Best {
        size_t begin;  // of the last token of the best way to this position
        float score;
        int32_t id;  // of that token; -1: the position cannot be reached yet
    };

    void search(std::string_view piece) {
        best.assign(piece.size() + 1, {0, 0, -1});
        const char* const end = piece.data() + piece.size();
        size_t last = 0;  // the last position that was reached
        int64_t steps = 0;
        for (size_t at = 0; at < piece.size();) {
            if (++steps % 4096 == 0) check_interrupt();
            const size_t first = size_t(decode(piece.data() + at, end).length);
            if (std::abs(best[at].score) > 100000) rebase(at, last);
            const float before = best[at].score;
            bool has_single = false;
            const auto try_token = [&](size_t length, int32_t id, float own_score) {
                Best& there = best[at + length];
                const float score = own_score + before;
                if (there.id < 0 || score > there.score) there = {at, score, id};
                last = std::max(last, at + length);
            };
            trie.each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
                if (is(id, PieceType::unused)) return;
                try_token(length, id,
                          is(id, PieceType::user_defined) ? float(0.1 * double(length - 1))
                                                          : scores[size_t(id)]);
                has_single = has_single || length == first;
            });
            if (!has_single) try_token(first, settings.unknown, unknown_score);
            at += first;
        }
    }

    // Makes the score of a position 0, so that sums do not lose precision.
    void rebase(size_t at, size_t last) {
        const float offset = best[at].score;
        for (size_t i = at; i <= last; ++i)
            if (i == at || best[i].id >= 0) best[i].score -= offset;
    }

    float unknown_score;
    Trie trie;
    std::vector<Best> best;  // by position
    std::vector<size_t> path;
};

// --- BPE ---

// Merges neighbours whose text together is a token: the highest score first, the leftmost of
// several.
class SentencePieceBpe : public SentencePieceModel {
public:
    SentencePieceBpe(std::shared_ptr<const Vocabulary> tokens, ModelSettings how,
                     const std::vector<double>& given, std::vector<PieceType> their_types)
        : SentencePieceModel(std::move(tokens), std::move(how), given, std::move(their_types)) {
        can_cut = true;
        for (int32_t id = 0; id < vocabulary->size(); ++id) {
            const std::string_view text = vocabulary->text(id);
            if (is_searched(id)) pieces[text] = id;
            if (is(id, PieceType::user_defined)) frozen.add(text, id);
            can_cut = can_cut && !is(id, PieceType::unused) &&
                      (!is_searched(id) || before_word_mark(text) == text.size());
        }
        can_cut = can_cut && (settings.byte_fallback || id_of(word_mark) != settings.unknown);
    }

    void encode(std::string_view piece, Ids& out) override {
        split(piece);
        for (size_t i = 1; i < symbols.size(); ++i) propose(int64_t(i) - 1, int64_t(i));
        for (int64_t steps = 1; !queue.empty(); ++steps) {
            if (steps % 4096 == 0) check_interrupt();
            const Pair pair = queue.top();
            queue.pop();
            Symbol &left = symbols[pair.left], &right = symbols[pair.right];
            if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
            left.size = pair.size;
            right.size = 0;
            left.after = right.after;
            if (left.after >= 0) symbols[size_t(left.after)].before = int64_t(pair.left);
            propose(left.before, int64_t(pair.left));
            propose(int64_t(pair.left), left.after);
        }
        bool after_unknown = false;
        for (int64_t i = 0; i >= 0; i = symbols[size_t(i)].after)
            put_used({symbols[size_t(i)].text, symbols[size_t(i)].size}, after_unknown, out);
    }

    size_t cut(std::string_view text) const override {
        return can_cut ? before_word_mark(text) : text.size();
    }

private:
    struct Symbol {
        const char* text;
        size_t size;  // 0: it was joined to the one on its left
        int64_t before, after;
        bool is_frozen;
    };
    struct Pair {
        float score;
        size_t left, right, size;
        bool operator<(const Pair& other) const {
            return score < other.score || (score == other.score && left > other.left);
        }
    };

    int32_t id_of(std::string_view text) const {
        const auto found = pieces.find(text);
        return found == pieces.end() ? settings.unknown : found->second;
    }

    // Characters and user-defined tokens, which are not merged.
    void split(std::string_view piece) {
        symbols.clear();
        halves.clear();
        while (!piece.empty()) {
            size_t size = 0;
            frozen.each_prefix(piece, [&](size_t length, int32_t) { size = length; });
            const bool is_frozen = size > 0;
            if (size == 0) size = size_t(decode(piece.data(), piece.data() + piece.size()).length);
            const int64_t index = int64_t(symbols.size());
            const bool is_last = size == piece.size();
            symbols.push_back({piece.data(), size, index - 1, is_last ? -1 : index + 1, is_frozen});
            piece.remove_prefix(size);
        }
    }

    void propose(int64_t left, int64_t right) {
        if (left < 0 || right < 0) return;
        const Symbol &a = symbols[size_t(left)], &b = symbols[size_t(right)];
        if (a.is_frozen || b.is_frozen) return;
        const std::string_view both(a.text, a.size + b.size);
        const auto found = pieces.find(both);
        if (found == pieces.end()) return;
        queue.push({scores[size_t(found->second)], size_t(left), size_t(right), both.size()});
        if (is(found->second, PieceType::unused)) halves[both] = a.size;
    }

    // Appends the token of a text; an unused one becomes the two of which it was made.
    void put_used(std::string_view whole, bool& after_unknown, Ids& out) {
        parts.assign(1, whole);
        while (!parts.empty()) {
            const std::string_view text = parts.back();
            parts.pop_back();
            const int32_t id = id_of(text);
            if (!is(id, PieceType::unused)) {
                put(id, text, after_unknown, out);
            } else if (const auto half = halves.find(text); half != halves.end()) {
                parts.push_back(text.substr(half->second));
                parts.push_back(text.substr(0, half->second));
            } else {
                put(settings.unknown, text, after_unknown, out);
            }
        }
    }

    std::unordered_map<std::string_view, int32_t> pieces;
    Trie frozen;
    bool can_cut;
    std::vector<Symbol> symbols;
    std::priority_queue<Pair> queue;
    std::unordered_map<std::string_view, size_t> halves;  // the left part's size, of unused tokens
    std::vector<std::string_view> parts;
};

}  // namespace

std::unique_ptr<Normalizer> new_sentencepiece_normalizer(const StepSettings& settings) {
    return std::make_unique<SentencePieceNormalizer>(settings);
}

std::unique_ptr<Model> new_sentencepiece(std::shared_ptr<const Vocabulary> vocabulary,
                                         ModelSettings settings, std::vector<double> scores,
                                         std::vector<PieceType> types, bool is_bpe) {
    for (const PieceType type : types)
        if (type < PieceType::normal || type > PieceType::byte)
            fail("a token has the type %d; 1 to 6 are possible", int(type));
    if (is_bpe)
        return std::make_unique<SentencePieceBpe>(std::move(vocabulary), std::move(settings),
                                                  scores, std::move(types));
    return std::make_unique<SentencePieceUnigram>(std::move(vocabulary), std::move(settings),
                                                  scores, std::move(types));
}

}  // namespace nn::text
