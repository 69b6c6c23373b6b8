// WordPiece (Schuster and Nakajima 2012): the longest token with which the rest of a word begins; a
// word that cannot be cut into tokens is one unknown token.
#include "engine/text/model.h"
#include "engine/text/utf8.h"

namespace nn::text {

namespace {

class WordPiece : public Model {
public:
    WordPiece(std::shared_ptr<const Vocabulary> tokens, ModelSettings how)
        : Model(std::move(tokens), std::move(how)) {
        for (int32_t id = 0; id < vocabulary->size(); ++id) {
            const std::string_view text = vocabulary->text(id);
            first.add(text, id);
            if (text.substr(0, settings.prefix.size()) == settings.prefix)
                further.add(text.substr(settings.prefix.size()), id);
        }
    }

    void encode(std::string_view piece, Ids& out) override {
        int64_t characters = 0;
        each_character(piece, [&](char32_t, std::string_view) { ++characters; });
        if (characters > settings.longest_word) return out.push_back(settings.unknown);
        const size_t count = out.size();
        for (size_t at = 0; at < piece.size();) {
            size_t longest = 0;
            int32_t token = -1;
            (at ? further : first).each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
                longest = length, token = id;
            });
            if (token < 0) {
                out.resize(count);
                return out.push_back(settings.unknown);
            }
            out.push_back(token);
            at += longest;
        }
    }

private:
    Trie first, further;  // tokens that begin and that continue a word
};

}  // namespace

std::unique_ptr<Model> new_wordpiece(std::shared_ptr<const Vocabulary> vocabulary,
                                     ModelSettings settings) {
    return std::make_unique<WordPiece>(std::move(vocabulary), std::move(settings));
}

}  // namespace nn::text
