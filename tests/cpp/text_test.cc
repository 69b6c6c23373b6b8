// Tokenizers through the C API: wrong arguments, regular expressions that are refused, and texts
// that are hard for a backtracking matcher. tests/lua/text/tokenizers.lua compares ids with
// another library.
#include <malloc.h>

#include <chrono>

#include "bindings/nn_text.h"
#include "engine/text/pattern.h"
#include "engine/text/tokenizer.h"
#include "tests/cpp/capi_test.h"

using namespace nn;
using namespace nn::capi_test;

namespace {

// The bytes as tokens, and "ab" from one merge.
struct Bytes {
    std::string text;
    std::vector<int64_t> ends;
    int32_t merge[3] = {'a', 'b', 256};
    nn_token_model_t model{};

    Bytes() {
        for (int byte = 0; byte < 256; ++byte) {
            text += char(byte);
            ends.push_back(byte + 1);
        }
        text += "ab";
        ends.push_back(258);
        model.tokens = 257;
        model.bytes = text.data();
        model.ends = ends.data();
        model.merges = merge;
        model.n_merges = 1;
        model.unknown = -1;
        model.flags = 4;
    }
};

void fill_categories() {
    REQUIRE_OK(nn_unicode_table("categories",
                                "Cc20 Zs1 Po3 Sc1 Po3 Ps1 Pe1 Po1 Sm1 Po1 Pd1 Po2 NdA Po2 Sm3 Po2 "
                                "Lu1A Ps1 Po1 Pe1 Sk1 Pc1 Sk1 Ll1A Ps1 Sm1 Pe1 Sm1 Cc21"));
    REQUIRE_OK(nn_unicode_table("word", "30-39 41-5A 5F 61-7A"));
    REQUIRE_OK(nn_unicode_table("script_greek", "370-373 3B1-3C9"));
}

std::string first_match(const std::string& pattern, const std::string& text) {
    const text::Pattern compiled(pattern);
    std::string found = "none";
    compiled.each(text, [&](const char* first, const char* last, bool is_match) {
        if (is_match && found == "none") found.assign(first, last);
    });
    return found;
}

}  // namespace

TEST_CASE("models of tokens with wrong arguments are refused") {
    nn_ref ref{};
    CHECK_REFUSED(nn_tokenizer_new(nullptr, &ref), "model is NULL");
    Bytes good;
    CHECK_REFUSED(nn_tokenizer_new(&good.model, nullptr), "tokenizer is NULL");
    const auto refused = [&](auto change, const char* why) {
        Bytes bytes;
        change(bytes);
        CHECK_REFUSED(nn_tokenizer_new(&bytes.model, &ref), why);
    };
    refused([](Bytes& b) { b.model.tokens = 0; }, "a model of 0 tokens");
    refused([](Bytes& b) { b.model.bytes = nullptr; }, "bytes is NULL");
    refused([](Bytes& b) { b.ends[3] = 1; }, "ends[3] is before");
    refused([](Bytes& b) { b.merge[1] = 257; }, "merge 0 has the token 257");
    refused([](Bytes& b) { b.merge[0] = -1; }, "merge 0 has the token -1");
    refused([](Bytes& b) { b.model.n_merges = -1; }, "-1 merges; 0 or more");
    refused([](Bytes& b) { b.model.merges = nullptr; }, "merges is NULL");
    refused([](Bytes& b) { b.model.unknown = 257; }, "unknown token is 257");
    refused([](Bytes& b) { b.model.kind = 3; }, "kind of model needs an unknown token");
    refused([](Bytes& b) { b.model.kind = 5, b.model.unknown = 0; }, "the kind of a model is 5");
    refused([](Bytes& b) { b.model.kind = 1, b.model.unknown = 0; }, "scores is NULL");
    std::vector<double> scores(257);
    std::vector<uint8_t> types(257, 1);
    const auto sentencepiece = [&](Bytes& b, int32_t kind) {
        b.model.kind = kind, b.model.unknown = 0;
        b.model.scores = scores.data();
    };
    types[256] = 7;
    for (const int32_t kind : {3, 4}) {
        refused([&](Bytes& b) { sentencepiece(b, kind); }, "types is NULL");
        refused([&](Bytes& b) { sentencepiece(b, kind), b.model.types = types.data(); },
                "a token has the type 7; 1 to 6 are possible");
    }
}

TEST_CASE("steps and texts with wrong arguments are refused") {
    fill_categories();
    Bytes bytes;
    nn_ref ref{};
    REQUIRE_OK(nn_tokenizer_new(&bytes.model, &ref));
    nn_text_step_t step{};
    CHECK_REFUSED(nn_tokenizer_step(&ref, &step), "kind is NULL");
    step.kind = "NFC2";
    CHECK_REFUSED(nn_tokenizer_step(&ref, &step), "there is no normalizer 'NFC2'");
    step.kind = "Split";
    step.splits = 1;
    CHECK_REFUSED(nn_tokenizer_step(&ref, &step), "the behaviour '' of a pre-tokenizer");
    step.text_size = -1;
    CHECK_REFUSED(nn_tokenizer_step(&ref, &step), "-1 bytes of a text");
    CHECK_REFUSED(nn_unicode_table("categories", "Xx1"), "unknown category 'Xx'");
    CHECK_REFUSED(nn_unicode_table("lower", "41-5A:0:20"), "damaged at");
    CHECK_REFUSED(nn_unicode_table("word", "41-110000"), "damaged at");
    CHECK_REFUSED(nn_unicode_table("letters", "41"), "no table 'letters'");
    fill_categories();
    int64_t count = 0, ends[2];
    CHECK_REFUSED(nn_tokenizer_encode(&ref, nullptr, 3, 0, &count), "3 bytes of NULL");
    REQUIRE_OK(nn_tokenizer_added(&ref, "<x>", 3, 256, 1));
    REQUIRE_OK(nn_tokenizer_encode(&ref, "cab<x>", 6, 1, &count));
    CHECK(count == 3);
    uint16_t ids[3];
    CHECK_REFUSED(nn_tokenizer_ids(&ref, ids, 3), "ids of 3 bytes");
    CHECK_REFUSED(nn_tokenizer_ids(&ref, nullptr, 2), "out is NULL");
    REQUIRE_OK(nn_tokenizer_ids(&ref, ids, 2));
    CHECK(ids[0] == 'c');
    CHECK(ids[1] == 256);
    CHECK(ids[2] == 256);
    step = {"ByteLevel", nullptr, nullptr, 0, 0, 2, 1};
    REQUIRE_OK(nn_tokenizer_step(&ref, &step));
    count = 2;
    CHECK_REFUSED(nn_tokenizer_pieces(&ref, "a b c", 5, ends, &count), "more than 2 pieces");
    REQUIRE_OK(nn_tokenizer_pieces(&ref, "a b", 3, ends, &count));
    CHECK(count == 2);
    CHECK(ends[0] == 1);
    for (int i = 1; i < 100; ++i) REQUIRE_OK(nn_tokenizer_step(&ref, &step));
    CHECK_REFUSED(nn_tokenizer_step(&ref, &step), "100 pre-tokenizers at most");
    step = {"Lowercase", nullptr, nullptr, 0, 0, 0, 0};
    REQUIRE_OK(nn_tokenizer_step(&ref, &step));
    CHECK_REFUSED(nn_tokenizer_pieces(&ref, "a b", 3, ends, &count), "it has normalizers");
    REQUIRE_OK(nn_release(&ref));
    CHECK_REFUSED(nn_tokenizer_encode(&ref, "a", 1, 0, &count), "not a live tokenizer");
}

TEST_CASE("regular expressions match as the notation says") {
    fill_categories();
    CHECK(first_match("b+?", "abbb") == "b");
    CHECK(first_match("ab|a", "ab") == "ab");
    CHECK(first_match("a|ab", "ab") == "a");
    CHECK(first_match("(?:x|ab)?b", "abb") == "abb");
    CHECK(first_match("\\p{L}{2,3}", "abcd") == "abc");
    CHECK(first_match("\\p{L}+(?=1)", "abc1") == "abc");
    CHECK(first_match("\\s+(?!\\S)", "a   b") == "  ");
    CHECK(first_match("a++a", "aaa") == "none");
    CHECK(first_match("(?i:'LL)", "i'lL") == "'lL");
    CHECK(first_match("[^a-c\\s]", "ab d") == "d");
    CHECK(first_match("[\\]\\-x]+", "a]-x") == "]-x");
    CHECK(first_match("\\P{L}", "ab1") == "1");
    CHECK(first_match("[\\P{L}\\P{N}]+", "a1") == "a1");
    CHECK(first_match("[\\D\\P{L}]+", "1a1") == "1a1");
    CHECK(first_match("[^\\P{L}b]", "1ba") == "a");
    CHECK(first_match(".", "\nb") == "b");
    CHECK(first_match("[^a]", "a\xFF") == "\xFF");
    CHECK(first_match("[a-w&&[^c-g]z]+", "fabz") == "ab");
    CHECK(first_match("[^a[bc]]", "abcd") == "d");
    CHECK(first_match("[x-&&\\w]", "-x") == "x");
    CHECK(first_match("(?i:[a&&[^A]])", "bA") == "A");
    CHECK(first_match("(?i:[^a&&[^A]])", "aAb") == "b");
    CHECK(first_match("(?i:[ac&&[A]])", "aAc") == "none");
    CHECK(first_match("(?i:[k-s]+)", "aKS\xC5\xBF\xE2\x84\xAAx") == "KS\xC5\xBF\xE2\x84\xAA");
    CHECK(first_match("[^\\p{Greek}a]+", "a\xCE\xB1z") == "z");
    CHECK(first_match("\\w+", "!a_1-") == "a_1");
    CHECK(first_match("\\u03B1\\x41",
                      "\xCE\xB1"
                      "A") ==
          "\xCE\xB1"
          "A");
}

TEST_CASE("quantifiers of groups and of quantifiers match as the notation says") {
    fill_categories();
    CHECK(first_match("(?:\r?\n)+(?!\r?\n)", "a\r\n\n\r\nb") == "\r\n\n\r\n");
    CHECK(first_match("(?:ab)*?b", "ababb") == "ababb");
    CHECK(first_match("(?:a|b){2,3}", "ababa") == "aba");
    CHECK(first_match("(?:a|b){2,3}?", "ababa") == "ab");
    CHECK(first_match("(?:a|ab){2}c", "aabc") == "aabc");
    CHECK(first_match("(?:ab)++a", "abab") == "none");
    CHECK(first_match("(?>a|ab)c", "abc") == "none");
    CHECK(first_match("a{1,2}+", "aaaaa") == "aaaaa");
    CHECK(first_match("a{2}?b", "aab") == "aab");
    CHECK(first_match("(a?){1}b", "aab") == "ab");
    CHECK(first_match("(?:a?\\b)?b", "ab b") == "b");
    CHECK(first_match("a" + std::string(40, '?') + "b", "ab") == "ab");
    CHECK(first_match("x{,2}y", "xxxy") == "xxy");
    std::string many = "x";
    for (int i = 0; i < 1000; ++i) many += "|" + std::to_string(i) + "a";
    for (const char* text : {"0a", "99a", "999a"}) CHECK(first_match(many, text) == text);
}

TEST_CASE("anchors and look-behind match as the notation says") {
    fill_categories();
    CHECK(first_match("\\s+$", "a b  \n c") == "  ");
    CHECK(first_match("\\n\\z|b$", "a\nb\n") == "b");
    CHECK(first_match("\\n\\Z", "a\nb\n") == "\n");
    CHECK(first_match("^b", "ab\nb") == "b");
    CHECK(first_match("\\Ab", "ab\nb") == "none");
    CHECK(first_match("\\d{1,3}(?=(?:\\d{3})*\\b)", "12345x 1234567") == "1");
    CHECK(first_match("b\\B.", "ab! bc") == "bc");
    CHECK(first_match("(?<!ab)c", "abc1c") == "c");
    CHECK(first_match("(?<=a|b)c.", "cdbce") == "ce");
}

TEST_CASE("empty matches cut a text, but not behind another match") {
    fill_categories();
    const auto cuts = [](const char* pattern, const std::string& text) {
        std::string out;
        text::Pattern(pattern).each(text, [&](const char* first, const char* last, bool is_match) {
            out.append(is_match ? "<" : "").append(first, last).append(is_match ? ">" : "");
        });
        return out;
    };
    CHECK(cuts("a*", "baab") == "<>b<aa>b<>");
    CHECK(cuts("(?=(\\d{3})+(?!\\d))", "1234567 12") == "1<>234<>567 12");
    CHECK(cuts("(?<!\\n)^", "ab\ncd") == "<>ab\ncd");
}

TEST_CASE("regular expressions that are not supported are refused with the reason") {
    fill_categories();
    const std::pair<const char*, const char*> cases[] = {
        {"(a*)*", "may match the empty text"},
        {"(a?){2}b", "may match the empty text"},
        {"(a|){0,3}b", "may match the empty text"},
        {"a(?:(?:(?:(?:){1000}){1000}){1000}){1000}", "may match the empty text"},
        {"a**", "may match the empty text"},
        {"(?=a)?", "without characters"},
        {"a{3,2}", "not {m,n}"},
        {"a{,}", "not {m,n}"},
        {"(a", "'(' without ')'"},
        {"a)", "')' without '('"},
        {"[a", "ends too early"},
        {"[]", "empty brackets"},
        {"[[:alpha:]]", "a POSIX bracket expression"},
        {"[a&&]", "an intersection"},
        {"\\hx", "the escape \\h"},
        {"(?i:ss)", "in another case"},
        {"(?i:\\x73s)", "in another case"},
        {"(?i:s\\u0053)", "in another case"},
        {"(?i:f(?:i))", "in another case"},
        {"\\u12", "an invalid code point"},
        {"\\012", "the escape \\0"},
        {"\\p{Greeks}", "known scripts"},
        {"+a", "'+' has nothing to repeat"},
        {"a}", "a '}' without '{'"},
        {"(?<=a+)b", "a variable-length look-behind"},
        {"(?<x>a)b", "a group of this kind"},
        {"[c-a]", "a bad range"},
        {"\\", "ends too early"},
        {"(?i:\xC3\xA9)", "beyond ASCII"},
        {"\xFF", "not UTF-8"},
        {"a{9999}", "up to 1000"}};
    for (const auto& [pattern, why] : cases) {
        INFO(pattern);
        CHECK_THROWS_WITH(text::Pattern(pattern), Catch::Contains(why));
    }
    CHECK_THROWS_WITH(text::Pattern(std::string(100, '(')), Catch::Contains("nested too deeply"));
}

TEST_CASE("regular expressions of any form are compiled or refused in a few seconds") {
    fill_categories();
    const auto repeat = [](const char* unit, int count) {
        std::string out;
        for (int i = 0; i < count; ++i) out += unit;
        return out;
    };
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH(text::Pattern(repeat("a", 20001)), Catch::Contains("at most 20000"));
    CHECK_THROWS_WITH(text::Pattern("a" + repeat("?", 19999)), Catch::Contains("20 quantifiers"));
    CHECK_THROWS_WITH(
        text::Pattern(repeat("(?:", 10) + repeat("(?:)", 4000) + "a" + repeat("){9}", 10)),
        Catch::Contains("too long"));
    CHECK(first_match(repeat("\\w", 9000), "a") == "none");
    CHECK(first_match("[" + repeat("\\W", 9000) + "]", "a!") == "!");
    CHECK(first_match(repeat("\\b", 9000) + "a", "a") == "a");
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("a search that would take too long ends with an error") {
    fill_categories();
    const text::Pattern pattern("a+a+a+a+a+a+b");
    const std::string text(400, 'a');
    CHECK_THROWS_WITH(
        pattern.each(text, [](const char*, const char*, bool) {}),
        Catch::Contains("'a+a+a+a+a+a+b' takes too long for a text of 400 bytes; split"));
    CHECK(first_match("a+a+b", std::string(400, 'a') + "b").size() == 401);
    const text::Pattern groups("(?:a|aa)+b");
    CHECK_THROWS_WITH(groups.each(text, [](const char*, const char*, bool) {}),
                      Catch::Contains("'(?:a|aa)+b' takes too long"));
}

TEST_CASE("repeated groups need no stack of the thread") {
    fill_categories();
    const std::string lines(1 << 20, '\n');
    CHECK(first_match("(?:\\r?\\n)+(?!\\r?\\n)", lines).size() == lines.size());
    CHECK(first_match("(?:\\n|\\r)+?x", lines.substr(0, 1000)) == "none");
}

TEST_CASE("a search that needs too much memory ends with an error, and returns it") {
    fill_categories();
    const text::Pattern pattern("(?:\\r?\\n)+(?!\\r?\\n)");
    const std::string lines(4 << 20, '\n');
    const auto in_use = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    const size_t before = in_use();
    CHECK_THROWS_WITH(pattern.each(lines, [](const char*, const char*, bool) {}),
                      Catch::Contains("needs more than 50 MB for a text of 4194304 bytes; split"));
    CHECK(in_use() < before + (8 << 20));
}

TEST_CASE("spaces before a letter are searched once for the end of the line") {
    fill_categories();
    CHECK(first_match("\\s+$", std::string(4 << 20, ' ') + "x ") == " ");
}

TEST_CASE("long runs take time that grows with their length") {
    fill_categories();
    const text::Pattern llama3(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
    for (const char* unit : {" ", "\n", "a", "1", "!", " \n", "'", "\xE2\x96", "a ", "A"}) {
        std::string text;
        while (text.size() < 4 << 20) text += unit;
        text += "x";
        size_t bytes = 0;
        llama3.each(text, [&](const char* a, const char* b, bool) { bytes += size_t(b - a); });
        CHECK(bytes == text.size());
    }
}
