// Byte-pair encoding (Sennrich et al. 2016): of all pairs of adjacent tokens, the one with the
// lowest rank is merged, the leftmost of several, until no known pair is left.
#include <algorithm>
#include <queue>

#include "engine/base/interrupts.h"
#include "engine/text/model.h"
#include "engine/text/utf8.h"

namespace nn::text {

namespace {

constexpr uint32_t no_rank = UINT32_MAX;
const std::string_view word_mark = "\xE2\x96\x81";  // SentencePiece's sign for a space

class Bpe : public Model {
public:
    Bpe(std::shared_ptr<const Vocabulary> tokens, ModelSettings how,
        const std::vector<Merge>& merges)
        : Model(std::move(tokens), std::move(how)), ranks(merges.size()) {
        for (size_t i = 0; i < merges.size(); ++i)
            ranks.set(key(merges[i].left, merges[i].right),
                      uint64_t(i) << 32 | uint32_t(merges[i].joined));
        if (settings.bytes) {
            for (int byte = 0; byte < 256; ++byte)
                byte_ids.push_back(vocabulary->find(std::string(1, char(byte))));
        } else {
            can_cut = is_cut_safe(merges);
        }
    }

    void encode(std::string_view piece, Ids& out) override {
        if (settings.whole_first) {
            const int32_t id = vocabulary->find(piece);
            if (id >= 0) return out.push_back(id);
        }
        symbols.clear();
        if (settings.bytes) {
            for (const char byte : piece) add(byte_ids[uint8_t(byte)], std::string_view(&byte, 1));
        } else {
            each_character(
                piece, [&](char32_t, std::string_view text) { add(vocabulary->find(text), text); });
        }
        add_waiting();
        if (symbols.size() <= 40) {
            merge_few();
            out.insert(out.end(), symbols.begin(), symbols.end());
        } else {
            merge_many(out);
        }
    }

    size_t cut(std::string_view text) const override {
        return can_cut ? before_word_mark(text) : text.size();
    }

private:
    static uint64_t key(int32_t left, int32_t right) {
        return (uint64_t(uint32_t(left)) << 32 | uint32_t(right)) + 1;
    }
    // The rank and the joined token of a pair; no_rank if it is unknown.
    std::pair<uint32_t, int32_t> rank_of(int32_t left, int32_t right) const {
        const uint64_t* const found = ranks.find(key(left, right));
        if (!found) return {no_rank, -1};
        return {uint32_t(*found >> 32), int32_t(uint32_t(*found))};
    }

    // Whether no merge joins tokens across the place before a word mark, and unknown text is never
    // fused across it.
    bool is_cut_safe(const std::vector<Merge>& merges) const {
        if (settings.whole_first || vocabulary->find(word_mark) < 0) return false;
        const auto begins = [](std::string_view t) { return t.substr(0, 3) == word_mark; };
        const auto ends = [](std::string_view t) {
            return t.size() >= 3 && t.substr(t.size() - 3) == word_mark;
        };
        return std::none_of(merges.begin(), merges.end(), [&](const Merge& merge) {
            return begins(vocabulary->text(merge.right)) && !ends(vocabulary->text(merge.left));
        });
    }

    // Appends the token of a character or byte. One without a token becomes those of its bytes, if
    // all of them exist, else the unknown token; without that it is dropped. The unknown token
    // waits for the next character with a token, also behind those of bytes, as in the library
    // tokenizers.
    void add(int32_t id, std::string_view text) {
        if (id >= 0) {
            add_waiting();
            symbols.push_back(id);
        } else if (settings.byte_fallback &&
                   vocabulary->append_bytes(settings.bytes ? byte_name(text[0]) : text, symbols)) {
            return;
        } else if (settings.unknown < 0) {
            if (dropped.empty()) dropped = text;
        } else {
            if (!settings.fuse_unknown) add_waiting();
            waits = true;
        }
    }
    void add_waiting() {
        if (waits) symbols.push_back(settings.unknown);
        waits = false;
    }
    // The name of a byte in byte-level vocabularies (lua/nn/text/byte_names.lua), in UTF-8.
    static std::string byte_name(char of) {
        const int byte = uint8_t(of);
        const int code = byte <= 32                   ? 256 + byte
                         : byte >= 127 && byte <= 160 ? 256 + byte - 94
                         : byte == 173                ? 323
                                                      : byte;
        if (code < 128) return std::string(1, char(code));
        return {char(0xC0 | code >> 6), char(0x80 | (code & 63))};
    }

    // Merges `symbols`: searches all pairs for the lowest rank.
    void merge_few() {
        pairs.clear();
        for (size_t i = 0; i + 1 < symbols.size(); ++i)
            pairs.push_back(rank_of(symbols[i], symbols[i + 1]));
        for (;;) {
            const auto lowest =
                std::min_element(pairs.begin(), pairs.end(),
                                 [](const auto& a, const auto& b) { return a.first < b.first; });
            if (lowest == pairs.end() || lowest->first == no_rank) return;
            const size_t i = size_t(lowest - pairs.begin());
            symbols[i] = lowest->second;
            symbols.erase(symbols.begin() + long(i) + 1);
            pairs.erase(lowest);
            if (i > 0) pairs[i - 1] = rank_of(symbols[i - 1], symbols[i]);
            if (i < pairs.size()) pairs[i] = rank_of(symbols[i], symbols[i + 1]);
        }
    }

    // The same with a queue of pairs and a linked list, for time that grows with n log n.
    void merge_many(Ids& out) {
        const size_t n = symbols.size();
        before.resize(n);
        after.resize(n);
        std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>> queue;
        const auto propose = [&](int64_t left, int64_t right) {
            const uint32_t rank = rank_of(symbols[size_t(left)], symbols[size_t(right)]).first;
            if (rank != no_rank) queue.push(uint64_t(rank) << 32 | uint64_t(left));
        };
        for (size_t i = 0; i < n; ++i) {
            before[i] = int64_t(i) - 1;
            after[i] = i + 1 < n ? int64_t(i) + 1 : -1;
            if (i > 0) propose(int64_t(i) - 1, int64_t(i));
        }
        for (int64_t steps = 1; !queue.empty(); ++steps) {
            if (steps % 4096 == 0) check_interrupt();
            const uint32_t rank = uint32_t(queue.top() >> 32);
            const size_t at = size_t(uint32_t(queue.top()));
            queue.pop();
            const int64_t right = symbols[at] == gone ? -1 : after[at];
            if (right < 0) continue;
            const auto [now, joined] = rank_of(symbols[at], symbols[size_t(right)]);
            if (now != rank) continue;
            symbols[at] = joined;
            symbols[size_t(right)] = gone;
            after[at] = after[size_t(right)];
            if (after[at] >= 0) {
                before[size_t(after[at])] = int64_t(at);
                propose(int64_t(at), after[at]);
            }
            if (before[at] >= 0) propose(before[at], int64_t(at));
        }
        for (int64_t i = 0; i >= 0; i = after[size_t(i)]) out.push_back(symbols[size_t(i)]);
    }

    static constexpr int32_t gone = -1;
    Table ranks;
    Ids byte_ids, symbols;
    bool can_cut = false, waits = false;  // waits: an unknown token, see add()
    std::vector<std::pair<uint32_t, int32_t>> pairs;
    std::vector<int64_t> before, after;
};

}  // namespace

size_t before_word_mark(std::string_view text) {
    size_t at = text.find(word_mark, 1);
    while (at != text.npos && at >= 3 && text.substr(at - 3, 3) == word_mark)
        at = text.find(word_mark, at + 3);
    return at == text.npos ? text.size() : at;
}

std::unique_ptr<Model> new_bpe(std::shared_ptr<const Vocabulary> vocabulary, ModelSettings settings,
                               const std::vector<Merge>& merges) {
    return std::make_unique<Bpe>(std::move(vocabulary), std::move(settings), merges);
}

}  // namespace nn::text
