// The C API of tokenizers.
#include "bindings/nn_text.h"

#include <algorithm>
#include <cstring>

#include "bindings/handles.h"
#include "engine/text/unicode.h"

using namespace nn;
using namespace nn::capi;

namespace {

std::shared_ptr<const text::Vocabulary> vocabulary_of(const nn_token_model_t& model) {
    if (model.tokens < 1) fail("a model of %d tokens; it needs one at least", model.tokens);
    const int64_t* const ends = &given(model.ends, "ends");
    for (int32_t i = 0; i < model.tokens; ++i)
        if (ends[i] < (i ? ends[i - 1] : 0)) fail("ends[%d] is before the end before it", i);
    return std::make_shared<text::Vocabulary>(
        std::string(&given(model.bytes, "bytes"), size_t(ends[model.tokens - 1])),
        std::vector<int64_t>(ends, ends + model.tokens));
}

std::vector<text::Merge> merges_of(const nn_token_model_t& model) {
    if (model.n_merges < 0) fail("%lld merges; 0 or more are possible", (long long)model.n_merges);
    if (model.n_merges && !model.merges) fail("merges is NULL");
    std::vector<text::Merge> merges;
    for (int64_t i = 0; i < model.n_merges; ++i) {
        const int32_t* const ids = model.merges + 3 * i;
        for (int part = 0; part < 3; ++part)
            if (ids[part] < 0 || ids[part] >= model.tokens)
                fail("merge %lld has the token %d of %d", (long long)i, ids[part], model.tokens);
        merges.push_back({ids[0], ids[1], ids[2]});
    }
    return merges;
}

text::ModelSettings settings_of(const nn_token_model_t& model) {
    text::ModelSettings settings;
    if (model.unknown < -1 || model.unknown >= model.tokens)
        fail("the unknown token is %d of %d; -1 means none", model.unknown, model.tokens);
    if (model.kind != 0 && model.unknown < 0)
        fail("this kind of model needs an unknown token, but `unknown` is -1");
    settings.unknown = model.unknown;
    settings.fuse_unknown = model.flags & 1;
    settings.byte_fallback = model.flags & 2;
    settings.bytes = model.flags & 4;
    settings.whole_first = model.flags & 8;
    settings.longest_word = model.longest_word;
    if (model.prefix) settings.prefix = model.prefix;
    return settings;
}

std::unique_ptr<text::Model> model_of(const nn_token_model_t& model) {
    auto vocabulary = vocabulary_of(model);
    text::ModelSettings settings = settings_of(model);
    if (model.kind == 0) return text::new_bpe(vocabulary, settings, merges_of(model));
    if (model.kind == 1) {
        const double* const scores = &given(model.scores, "scores");
        return text::new_unigram(vocabulary, settings, {scores, scores + model.tokens});
    }
    if (model.kind == 3 || model.kind == 4) {
        const double* const scores = &given(model.scores, "scores");
        std::vector<text::PieceType> types;
        for (int32_t i = 0; i < model.tokens; ++i)
            types.push_back(text::PieceType((&given(model.types, "types"))[i]));
        return text::new_sentencepiece(vocabulary, settings, {scores, scores + model.tokens},
                                       std::move(types), model.kind == 4);
    }
    if (model.kind != 2) fail("the kind of a model is %d; it must be 0 to 4", model.kind);
    return text::new_wordpiece(vocabulary, settings);
}

std::string text_of(const char* text, int64_t bytes) {
    if (bytes < 0 || (bytes && !text)) fail("%lld bytes of a text at %p", (long long)bytes, text);
    return bytes ? std::string(text, size_t(bytes)) : std::string();
}

template <class T> void copy_ids(const text::Ids& ids, void* out) {
    T* const to = static_cast<T*>(out);
    for (size_t i = 0; i < ids.size(); ++i) {
        to[i] = T(ids[i]);
        if (int64_t(to[i]) != int64_t(ids[i])) fail("id %d needs 4 bytes", int(ids[i]));
    }
}

}  // namespace

extern "C" {

int nn_unicode_table(const char* name, const char* table) {
    return guard([&] { text::unicode().set(&given(name, "name"), &given(table, "text")); });
}

int nn_tokenizer_new(const nn_token_model_t* model, nn_ref* tokenizer) {
    return guard([&] {
        given(tokenizer, "tokenizer") = {0, 0};
        *tokenizer = new_ref(std::make_shared<text::Tokenizer>(model_of(given(model, "model"))));
    });
}

int nn_tokenizer_step(const nn_ref* tokenizer, const nn_text_step_t* step) {
    return guard([&] {
        text::StepSettings settings;
        settings.kind = &given(given(step, "step").kind, "kind");
        settings.flags = step->flags;
        settings.text = text_of(step->text, step->text_size);
        settings.content = text_of(step->content, step->content_size);
        text::Tokenizer& to = tokenizer_of(tokenizer);
        auto splitter = step->splits ? text::new_splitter(settings) : nullptr;
        auto normalizer = step->splits ? nullptr : text::new_normalizer(settings);
        if (!splitter && !normalizer)
            fail("there is no %s '%s'", step->splits ? "pre-tokenizer" : "normalizer", step->kind);
        splitter ? to.add_splitter(std::move(splitter)) : to.add_normalizer(std::move(normalizer));
    });
}

int nn_tokenizer_added(const nn_ref* tokenizer, const char* text, int64_t bytes, int32_t id,
                       int32_t flags) {
    return guard([&] {
        if (id < 0) fail("the id of an added token is %d; it must be 0 or more", id);
        tokenizer_of(tokenizer).add_token({text_of(text, bytes), id, bool(flags & 1),
                                           bool(flags & 2), bool(flags & 4), bool(flags & 8),
                                           bool(flags & 16)});
    });
}

int nn_tokenizer_encode(const nn_ref* tokenizer, const char* text, int64_t bytes, int32_t special,
                        int64_t* count) {
    return guard([&] {
        if (bytes < 0 || (bytes && !text)) fail("encode: %lld bytes of NULL", (long long)bytes);
        const std::string_view view(text ? text : "", size_t(bytes));
        given(count, "count") = int64_t(tokenizer_of(tokenizer).encode(view, special).size());
    });
}

int nn_tokenizer_ids(const nn_ref* tokenizer, void* out, int32_t width) {
    return guard([&] {
        const text::Ids& ids = tokenizer_of(tokenizer).encoded();
        if (!out && !ids.empty()) fail("out is NULL");
        if (width != 2 && width != 4) fail("ids of %d bytes; 2 or 4 are possible", width);
        width == 2 ? copy_ids<uint16_t>(ids, out) : copy_ids<uint32_t>(ids, out);
    });
}

int nn_tokenizer_dropped(const nn_ref* tokenizer, char* text, int32_t room) {
    return guard([&] {
        const std::string& dropped = tokenizer_of(tokenizer).first_dropped();
        if (room < 1) fail("room for %d bytes", room);
        given(text, "text") = char(std::min(int(dropped.size()), room - 1));
        std::memcpy(text + 1, dropped.data(), size_t(text[0]));
    });
}

int nn_tokenizer_pieces(const nn_ref* tokenizer, const char* text, int64_t bytes, int64_t* ends,
                        int64_t* count) {
    return guard([&] {
        if (bytes < 0 || (bytes && !text)) fail("pieces: %lld bytes of NULL", (long long)bytes);
        int64_t done = 0, end = 0;
        const std::string_view whole(text ? text : "", size_t(bytes));
        const int64_t room = given(count, "count");
        tokenizer_of(tokenizer).each_piece(whole, [&](text::Piece piece) {
            if (piece.text.data() != whole.data() + end) fail("the tokenizer changes the text");
            if (done >= room) fail("more than %lld pieces", (long long)room);
            end += int64_t(piece.text.size());
            (&given(ends, "ends"))[done++] = end;
        });
        if (end != bytes) fail("the tokenizer drops text");
        *count = done;
    });
}

}  // extern "C"
