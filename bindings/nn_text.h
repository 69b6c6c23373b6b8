// nnlua's C API for tokenizers, as nn.h: flat, never throws, and LuaJIT reads it too.
#ifndef NN_TEXT_H
#define NN_TEXT_H
#include "nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// <cdef>
// A model of tokens. tokens: their number; bytes, ends: their texts one after the other, by id, and
// where each ends. merges: for kind 0, the ids of the left, the right and the joined token of each,
// by rank. scores: for kinds 1, 3 and 4, of each token. types: for kinds 3 and 4, of each token: 1
// normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 a byte. unknown: the id of the token
// for unknown text, or -1. flags: 1 neighbouring unknown characters are one token; 2 unknown
// characters become tokens <0x00> to <0xFF> of their bytes; 4 kind 0: tokens are texts of bytes,
// not of characters; 8 kind 0: a piece that is a token is not split. prefix, longest_word (in
// characters): for kind 2.
typedef struct {
    int32_t kind, tokens;  // kind: 0 BPE, 1 unigram, 2 WordPiece, 3 SentencePiece's unigram, 4 BPE
    const char* bytes;
    const int64_t* ends;
    const int32_t* merges;
    int64_t n_merges;
    const double* scores;
    const uint8_t* types;
    int32_t unknown, flags, longest_word;
    const char* prefix;
} nn_token_model_t;
// A step before the model; engine/text/steps.h lists the kinds and their settings. splits: 0 it is
// a normalizer, 1 a pre-tokenizer.
typedef struct {
    const char *kind, *text, *content;
    int64_t text_size, content_size;
    int32_t flags, splits;
} nn_text_step_t;

// Sets a table of properties of code points (engine/text/unicode.h), which the steps use.
int nn_unicode_table(const char* name, const char* text);
int nn_tokenizer_new(const nn_token_model_t* model, nn_ref* tokenizer);
int nn_tokenizer_step(const nn_ref* tokenizer, const nn_text_step_t* step);
// Adds a token that is cut out of texts, after all steps. flags: 1 special: only if the caller of
// nn_tokenizer_encode asks for it; 2 in the normalized text; 4 only whole words; 8, 16 with the
// white space on its left, on its right.
int nn_tokenizer_added(const nn_ref* tokenizer, const char* text, int64_t bytes, int32_t id,
                       int32_t flags);
// Encodes any bytes. special: the texts of special tokens become these tokens. *count: of the ids,
// which nn_tokenizer_ids copies as integers of 2 or 4 bytes.
int nn_tokenizer_encode(const nn_ref* tokenizer, const char* text, int64_t bytes, int32_t special,
                        int64_t* count);
int nn_tokenizer_ids(const nn_ref* tokenizer, void* out, int32_t width);
// The first character or byte that nn_tokenizer_encode dropped because kind 0 has neither a token
// for it nor an unknown one: text[0] is its number of bytes (0: none so far), which follow.
int nn_tokenizer_dropped(const nn_ref* tokenizer, char* text, int32_t room);
// Cuts a text into pieces, for training. Fails if the tokenizer's steps change the text. ends:
// where each piece ends; *count: capacity in, number of pieces out.
int nn_tokenizer_pieces(const nn_ref* tokenizer, const char* text, int64_t bytes, int64_t* ends,
                        int64_t* count);
// </cdef>

#ifdef __cplusplus
}
#endif
#endif
