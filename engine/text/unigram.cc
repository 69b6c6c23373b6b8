// Unigram language model (Kudo 2018): of all ways to cut a text into tokens, the one whose sum of
// scores is highest (Viterbi's algorithm); the first found of several.
#include <algorithm>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/text/model.h"
#include "engine/text/utf8.h"

namespace nn::text {

namespace {

class Unigram : public Model {
public:
    Unigram(std::shared_ptr<const Vocabulary> tokens, ModelSettings how, std::vector<double> given)
        : Model(std::move(tokens), std::move(how)), scores(std::move(given)) {
        double lowest = std::numeric_limits<double>::infinity();
        for (int32_t id = 0; id < vocabulary->size(); ++id) {
            const std::string_view text = vocabulary->text(id);
            trie.add(text, vocabulary->find(text));
            lowest = std::min(lowest, scores[size_t(id)]);
        }
        unknown_score = lowest - 10;
    }

    void encode(std::string_view piece, Ids& out) override {
        search(piece);
        tokens.clear();
        for (size_t end = piece.size(); end > 0;) {
            const Best& best = paths[end];
            const size_t length = end - best.begin;
            const bool unknown = best.id == settings.unknown;
            if (unknown && !tokens.empty() && tokens.back().unknown) {
                tokens.back().begin -= length;
                tokens.back().length += length;
            } else {
                tokens.push_back({best.begin, length, unknown});
            }
            end = best.begin;
        }
        for (auto token = tokens.rbegin(); token != tokens.rend(); ++token)
            put(piece.substr(token->begin, token->length), out);
    }

private:
    struct Best {
        double score;
        size_t begin;  // of the last token of the best way to this position
        int32_t id;    // of that token; -1: the position cannot be reached yet
    };
    struct Token {
        size_t begin, length;
        bool unknown;
    };

    void search(std::string_view piece) {
        paths.assign(piece.size() + 1, {0, 0, -1});
        const char* const end = piece.data() + piece.size();
        const auto try_token = [&](size_t begin, size_t length, int32_t id, double score) {
            Best& best = paths[begin + length];
            if (best.id < 0 || score > best.score) best = {score, begin, id};
        };
        int64_t steps = 0;
        for (size_t at = 0; at < piece.size();) {
            if (++steps % 4096 == 0) check_interrupt();
            const size_t first = size_t(decode(piece.data() + at, end).length);
            const double before = paths[at].score;
            bool has_single = false;
            trie.each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
                try_token(at, length, id, before + scores[size_t(id)]);
                has_single = has_single || length == first;
            });
            if (!has_single) try_token(at, first, settings.unknown, before + unknown_score);
            at += first;
        }
    }

    // A text that the search took for unknown may be a token nevertheless.
    void put(std::string_view text, Ids& out) const {
        const int32_t id = vocabulary->find(text);
        if (id >= 0) {
            out.push_back(id);
        } else if (!settings.byte_fallback || !vocabulary->append_bytes(text, out)) {
            out.push_back(settings.unknown);
        }
    }

    const std::vector<double> scores;
    double unknown_score;
    Trie trie;
    std::vector<Best> paths;  // by position
    std::vector<Token> tokens;
};

}  // namespace

std::unique_ptr<Model> new_unigram(std::shared_ptr<const Vocabulary> vocabulary,
                                   ModelSettings settings, std::vector<double> scores) {
    if (int32_t(scores.size()) != vocabulary->size())
        fail("every token of a unigram needs a score");
    return std::make_unique<Unigram>(std::move(vocabulary), std::move(settings), std::move(scores));
}

}  // namespace nn::text
