// Encoding: see tokenizer.h.
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/text/unicode.h"

namespace nn::text {

// --- Added tokens ---

void AddedTokens::add(AddedToken token) {
    if (token.text.empty()) return;
    first_bytes[uint8_t(token.text[0])] = true;
    trie.add(token.text, int32_t(tokens.size()));
    tokens.push_back(std::move(token));
}

const AddedToken* AddedTokens::at_begin(std::string_view text) const {
    int32_t longest = -1;
    trie.each_prefix(text, [&](size_t, int32_t index) { longest = index; });
    return longest < 0 ? nullptr : &tokens[size_t(longest)];
}

bool AddedTokens::is_within_word(std::string_view text, size_t first, size_t last) {
    const char *const begin = text.data(), *const end = begin + text.size();
    const auto is_word = [](Character c) { return unicode().has(c.code, word); };
    return (first > 0 && is_word(decode_before(begin, begin + first))) ||
           (last < text.size() && is_word(decode(begin + last, end)));
}

template <class R, class F>
void AddedTokens::each(std::string_view text, bool allow_special, R rest, F found) const {
    const char *const begin = text.data(), *const end = begin + text.size();
    size_t done = 0;
    int64_t steps = 0;
    const auto count_step = [&] {
        if (++steps % (1 << 16) == 0) check_interrupt();
    };
    for (size_t at = 0; at < text.size();) {
        count_step();
        const AddedToken* const token =
            first_bytes[uint8_t(text[at])] ? at_begin(text.substr(at)) : nullptr;
        if (!token) {
            ++at;
            continue;
        }
        size_t first = at, last = at + token->text.size();
        at = last;
        if (token->special && !allow_special) continue;
        if (token->single_word && is_within_word(text, first, last)) continue;
        while (token->left && first > done) {
            const Character c = decode_before(begin, begin + first);
            if (!is_space(c.code)) break;
            count_step();
            first -= size_t(c.length);
        }
        while (token->right && last < text.size()) {
            const Character c = decode(begin + last, end);
            if (!is_space(c.code)) break;
            count_step();
            last += size_t(c.length);
        }
        // The token before may have taken white space with which this one begins.
        if (done < first) rest(text.substr(done, first - done));
        found(token->id);
        done = last;
    }
    if (done < text.size()) rest(text.substr(done));
}

// --- The cache ---

uint64_t PieceCache::hash_of(std::string_view piece) {
    uint64_t hash = piece.size() * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < piece.size(); i += 8) {
        uint64_t part = 0;
        std::memcpy(&part, piece.data() + i, std::min<size_t>(8, piece.size() - i));
        hash = (hash ^ part) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

size_t PieceCache::place(std::string_view piece, uint64_t hash) const {
    const size_t mask = entries.size() - 1;
    for (size_t i = hash >> 1 & mask;; i = (i + 1) & mask) {
        const Entry& entry = entries[i];
        if (entry.hash == 0) return i;
        if (entry.hash == hash && piece == std::string_view(&texts[entry.text], entry.length))
            return i;
    }
}

const int32_t* PieceCache::find(std::string_view piece, size_t* count) const {
    if (piece.size() > longest || entries.empty()) return nullptr;
    const Entry& entry = entries[place(piece, hash_of(piece))];
    if (entry.hash == 0) return nullptr;
    *count = entry.count;
    return tokens.data() + entry.ids;
}

// Doubles the table where half of it is used; forgets all where it has its final size.
void PieceCache::make_room() {
    if (2 * used < entries.size()) return;
    std::vector<Entry> before;
    before.swap(entries);
    if (before.size() == most) {
        texts.clear();
        tokens.clear();
        used = 0;
        entries.resize(most);
        return;
    }
    entries.resize(std::max<size_t>(256, 2 * before.size()));
    for (const Entry& entry : before)
        if (entry.hash) entries[place({&texts[entry.text], entry.length}, entry.hash)] = entry;
}

void PieceCache::put(std::string_view piece, const int32_t* ids, size_t count) {
    if (piece.size() > longest) return;
    make_room();
    const uint64_t hash = hash_of(piece);
    entries[place(piece, hash)] = {hash, uint32_t(texts.size()), uint32_t(tokens.size()),
                                   uint16_t(piece.size()), uint16_t(count)};
    texts += piece;
    tokens.insert(tokens.end(), ids, ids + count);
    ++used;
}

// --- Encoding ---

std::string Tokenizer::normalized(std::string_view text, bool& begins) const {
    std::string now(text), next;
    for (const auto& step : normalizers) {
        next.clear();
        step->apply(now, next, begins);
        now.swap(next);
    }
    return now;
}

void Tokenizer::add_splitter(std::unique_ptr<Splitter> step) {
    // Their calls nest.
    if (splitters.size() == 100) fail("a tokenizer can have 100 pre-tokenizers at most");
    splitters.push_back(std::move(step));
}

void Tokenizer::add_token(AddedToken token) {
    if (!token.normalized) return plain.add(std::move(token));
    bool begins = true;
    token.text = normalized(token.text, begins);
    in_normalized.add(std::move(token));
}

const Ids& Tokenizer::encode(std::string_view text, bool special) {
    ids.clear();
    const auto rest = [&](std::string_view segment) {
        encode_segment(segment, segment.data() == text.data(), special);
    };
    if (plain.empty()) {
        rest(text);
    } else {
        plain.each(text, special, rest, [&](int32_t id) { ids.push_back(id); });
    }
    return ids;
}

void Tokenizer::encode_segment(std::string_view text, bool begins, bool special) {
    std::string changed;
    if (!normalizers.empty()) {
        changed = normalized(text, begins);
        text = changed;
    }
    const Splitter::Next each = [this](Piece piece) { encode_piece(piece.text); };
    const auto rest = [&](std::string_view segment) {
        split({segment, begins && segment.data() == text.data()}, 0, each);
    };
    if (!text.empty() && in_normalized.empty()) {
        rest(text);
    } else {
        in_normalized.each(text, special, rest, [&](int32_t id) { ids.push_back(id); });
    }
}

void Tokenizer::split(Piece piece, size_t step, const Splitter::Next& each) const {
    if (step == splitters.size()) return each(piece);
    if (step + 1 == splitters.size()) return splitters[step]->split(piece, each);
    splitters[step]->split(piece, [&](Piece part) { split(part, step + 1, each); });
}

void Tokenizer::each_piece(std::string_view text, const Splitter::Next& each) const {
    if (!normalizers.empty()) fail("the tokenizer changes the text: it has normalizers");
    if (!text.empty()) split({text, true}, 0, each);
}

void Tokenizer::encode_piece(std::string_view piece) {
    while (!piece.empty()) {
        if (++pieces % 4096 == 0) check_interrupt();
        const std::string_view part = piece.substr(0, model->cut(piece));
        piece.remove_prefix(part.size());
        size_t count = 0;
        if (const int32_t* const known = cache.find(part, &count)) {
            ids.insert(ids.end(), known, known + count);
            continue;
        }
        const size_t first = ids.size();
        model->encode(part, ids);
        cache.put(part, ids.data() + first, ids.size() - first);
    }
}

}  // namespace nn::text
