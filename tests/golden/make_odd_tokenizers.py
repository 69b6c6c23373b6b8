"""Writes odd_tokenizers.json: tokenizer.json files in which one entry is absent, null or unusual, and
the ids and the decoded texts that the library tokenizers gives of TEXTS with them, or null where it
refuses the file or the text. tests/lua/text/odd_tokenizers.lua reads it.

    pip install tokenizers && python3 tests/golden/make_odd_tokenizers.py
"""
import copy
import json
import pathlib

import tokenizers

OUT = pathlib.Path(__file__).parent / "odd_tokenizers.json"
TEXTS = ["ab a", "A  b\u00e9 x", "a\x04b ", "<s>ab</s> <p>a ,b12.", "x \u2581ab''c"]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
ABSENT = object()


def added(number, content, **how):
    return {"id": number, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True, **how}


def numbered(names):
    return {name: i for i, name in enumerate(names)}


def template(single, pair, *names):
    def item(text):
        name, _, number = text.partition(":")
        kind = {"Sequence": {"id": name[1:]}} if name[0] == "$" else {"SpecialToken": {"id": name}}
        next(iter(kind.values()))["type_id"] = int(number or 0)
        return kind
    return {"type": "TemplateProcessing", "single": [item(t) for t in single.split()],
            "pair": [item(t) for t in pair.split()],
            "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for i, n in enumerate(names)}}


def file(model, tokens, normalizer, splitter, processor, decoder):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": normalizer, "pre_tokenizer": splitter, "post_processor": processor,
            "decoder": decoder, "model": model}


def bases():
    """A small file of each kind of model, with every entry."""
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
           "ignore_merges": False}
    tokens = [added(0, "<s>"), added(1, "</s>")]
    around = template("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", "<s>", "</s>")
    level = numbered(["<s>", "</s>", *"abcx,.12'", "\u0120", "\u00c3", "\u00a9", "ab", "\u0120a"])
    words = numbered(["<s>", "</s>", "<unk>", "\u2581", *"abcx", "\u2581a", "<0x04>", "<0xC3>",
                      "<0xA9>", "<0x41>"])
    unigram = [["<s>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["\u2581", -2.0], ["a", -3.0],
               ["b", -3.5], ["ab", -5], ["\u2581a", -4.0], ["<0xC3>", -9.0], ["<0xA9>", -9.0], ["x", -3]]
    pieces = numbered(["<s>", "</s>", "[UNK]", "a", "b", "##b", "x", "e", "12", "##1", ","])
    mark = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": True}
    return {
        "bytes": file({**bpe, "vocab": level, "merges": [["a", "b"], ["\u0120", "a"]]}, tokens,
                      {"type": "NFC"}, BYTES, around, BYTES),
        "words": file({**bpe, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                       "vocab": words, "merges": [["\u2581", "a"]]},
                      [*tokens, added(13, "<p>", special=False, normalized=True)],
                      {"type": "Sequence", "normalizers": [
                          {"type": "Prepend", "prepend": "\u2581"},
                          {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                      None, around, {"type": "Sequence", "decoders": [
                          {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                          {"type": "ByteFallback"}, {"type": "Fuse"},
                          {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
        "unigram": file({"type": "Unigram", "unk_id": 2, "vocab": unigram, "byte_fallback": True},
                        tokens, None, mark, around, mark),
        "wordpiece": file({"type": "WordPiece", "unk_token": "[UNK]",
                           "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                           "vocab": pieces}, tokens, bert, {"type": "BertPreTokenizer"},
                          {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]},
                          {"type": "WordPiece", "prefix": "##", "cleanup": True}),
    }


# Further steps with every setting, by the entry of the file and the base.
STEPS = {
    ("normalizer", "unigram"): [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        {"type": "Lowercase"}, {"type": "Sequence", "normalizers": []}],
    ("pre_tokenizer", "unigram"): [
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False},
        {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Removed"},
        {"type": "CharDelimiterSplit", "delimiter": "a"}, {"type": "Whitespace"},
        {"type": "WhitespaceSplit"}, {"type": "Sequence", "pretokenizers": []}],
    ("post_processor", "unigram"): [
        {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": True,
         "add_prefix_space": True}, BYTES, {"type": "Sequence", "processors": []}],
    ("decoder", "unigram"): [
        {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Fuse"}, {"type": "Sequence", "decoders": []},
        {"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "|", "cleanup": True}],
    ("decoder", "bytes"): [{"type": "Fuse"}, None],
}
# Values that files have besides those above: (base, path, value).
VALUES = [
    ("bytes", "model.unk_token", "x"), ("bytes", "model.unk_token", "<missing>"),
    ("bytes", "model.byte_fallback", True), ("bytes", "model.dropout", 0.5),
    ("bytes", "model.dropout", 0.0), ("bytes", "model.ignore_merges", True),
    ("bytes", "model.continuing_subword_prefix", ""), ("bytes", "model.end_of_word_suffix", "</w>"),
    ("bytes", "model.vocab.b", 40), ("bytes", "model.vocab.b", 2), ("bytes", "model.vocab.b", -1),
    ("bytes", "model.vocab.\u4e2d", 99), ("bytes", "model.vocab. ", 99),
    ("bytes", "model.merges", ["a b", "\u0120 a"]), ("bytes", "model.merges", [["a", "q"]]),
    ("bytes", "model.type", "WordLevel"), ("bytes", "model.type", "Other"),
    ("bytes", "normalizer", {"type": "Other"}), ("bytes", "added_tokens", []),
    ("bytes", "added_tokens", [added(0, "<s>"), added(30, "<p>")]),
    ("bytes", "added_tokens", [added(31, "<p>"), added(30, "</p>"), added(1, "</s>")]),
    ("bytes", "added_tokens", [added(5, "<s>")]), ("bytes", "added_tokens", [added(0, "")]),
    ("bytes", "added_tokens", [added(30, "<p>"), added(30, "<p>")]),
    ("bytes", "added_tokens", [added(5, "<p>")]),
    ("bytes", "added_tokens", [added(0, "<s>", special=False)]),
    ("bytes", "truncation", {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                             "stride": 0}),
    ("bytes", "padding", {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                          "pad_id": 1, "pad_type_id": 0, "pad_token": "</s>"}),
    ("bytes", "unknown_entry", 7), ("bytes", "model.unknown_entry", 7),
    ("words", "model.vocab.<0xA9>", ABSENT), ("words", "model.unk_token", None),
    ("words", "model.vocab.<unk>", ABSENT), ("words", "model.vocab.b", 60),
    ("words", "pre_tokenizer", {"type": "Metaspace", "replacement": "\u2581",
                                "prepend_scheme": "first", "split": False}),
    ("words", "pre_tokenizer", {"type": "Metaspace", "replacement": "\u2581",
                                "add_prefix_space": True}),
    ("words", "pre_tokenizer", {"type": "Metaspace", "replacement": "\u2581",
                                "add_prefix_space": False}),
    ("unigram", "model.unk_id", 50), ("unigram", "model.vocab", []),
    ("unigram", "added_tokens", [added(0, "<s>"), added(90, "<p>")]),
    ("unigram", "pre_tokenizer.replacement", "_"), ("unigram", "pre_tokenizer.prepend_scheme", "Other"),
    ("wordpiece", "model.unk_token", "<missing>"), ("wordpiece", "model.vocab.b", 70),
    ("wordpiece", "model.max_input_chars_per_word", 1), ("wordpiece", "normalizer.strip_accents", False),
    ("wordpiece", "normalizer.lowercase", False), ("wordpiece", "model.continuing_subword_prefix", ""),
]


def changed(content, path, value):
    content = copy.deepcopy(content)
    *folders, name = path.split(".", 2)
    at = content
    for folder in folders:
        at = at[int(folder) if isinstance(at, list) else folder]
    name = int(name) if isinstance(at, list) else name
    if value is ABSENT:
        del at[name]
    else:
        at[name] = value
    return content


def entries(content):
    """The paths of the entries that are tried absent and null."""
    for name, value in content.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in value)
    yield from (f"added_tokens.0.{name}" for name in content["added_tokens"][0])


def files():
    """(name, content) of all files."""
    found = bases()
    for base, content in found.items():
        yield base, content
        for path in entries(content):
            yield f"{base} {path} absent", changed(content, path, ABSENT)
            yield f"{base} {path} null", changed(content, path, None)
    for (entry, base), steps in STEPS.items():
        for step in steps:
            content, kind = changed(found[base], entry, step), (step or {}).get("type")
            yield f"{base} {entry} {kind}", content
            for name in step or {}:
                path = f"{entry}.{name}"
                yield f"{base} {kind} {path} absent", changed(content, path, ABSENT)
                yield f"{base} {kind} {path} null", changed(content, path, None)
    for base, path, value in VALUES:
        said = "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)
        yield f"{base} {path} {said}"[:90], changed(found[base], path, value)


def results(content):
    """[ids, text] of each of TEXTS, or None where the library refuses; None for the whole file."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException:  # pylint: disable=broad-except
        return None        # also a panic
    out = []
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for text in TEXTS:
        try:
            ids = tokenizer.encode(text).ids
            out.append([ids, tokenizer.decode(ids, skip_special_tokens=False)])
        except BaseException:  # pylint: disable=broad-except
            out.append(None)
    return out


def difference(base, text):
    """The first byte in which a text differs from another one, how many are cut there, and what is put."""
    base, text = base.encode(), text.encode()
    first, last = 0, 0
    while first < min(len(base), len(text)) and base[first] == text[first]:
        first += 1
    while last < min(len(base), len(text)) - first and base[-1 - last] == text[-1 - last]:
        last += 1
    while first < len(base) and base[first] & 0xC0 == 0x80:    # within a character
        first -= 1
    while last and base[len(base) - last] & 0xC0 == 0x80:
        last -= 1
    return first, len(base) - last - first, text[first:len(text) - last].decode()


def main():
    cases, seen, shared, sources = [], set(), {}, {}
    for name, content in files():
        source = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        base = sources.setdefault(name.split(" ")[0], source)
        if source not in seen:
            seen.add(source)
            expected = json.dumps(results(content), separators=(",", ":"))
            number = shared.setdefault(expected, len(shared))
            cases.append([name, *difference(base, source), number])
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    head = json.dumps({"version": tokenizers.__version__, "texts": TEXTS, "bases": sources})[:-1]
    found = ",\n".join(shared)
    OUT.write_text(f'{head},\n"results":[\n{found}],\n"cases":[\n{lines}]}}\n')
    refused = sum(case[-1] == shared["null"] for case in cases)
    print(f"{len(cases)} files, {refused} of them refused, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
