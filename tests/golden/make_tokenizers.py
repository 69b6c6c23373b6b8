"""Writes tokenizers/: a small tokenizer.json of each kind in tokenizer_families.py, and what the
library tokenizers makes of hard texts with it, for tests/lua/text/tokenizers.lua.

Of each kind: CRC-32 sums of the ids of CASES, with and without special tokens, and of their decoded
texts; the ids of a pair; sums of the ids of code points and of random texts. The same of every single
normalizer and pre-tokenizer, with tokens that are bytes.

    pip install tokenizers sentencepiece protobuf && python3 tests/golden/make_tokenizers.py
"""
import array
import json
import pathlib
import zlib

from make_bpe import ALPHABET, CASES, TEXT, Random
from tokenizer_families import FAMILIES, single_steps

OUT = pathlib.Path(__file__).parent / "tokenizers"
BUNCH, BUNCHES = 500, 4
CHUNK, LAST = 4096, 0x30000
SIZES = {"llama2": 420, "mistral": 420, "t5": 120, "albert": 120, "bert": 160, "bert_cased": 160}
MORE = [
    "<s>a</s> b<unk>", "<|im_start|>user\nhi<|im_end|>", "a <mask> b", "x  [MASK]y", " nnlua nnluax",
    "NNLUA Nnlua", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n1234567",
    "<think>so</think>", "a" + " " * 30 + "b", "\u2581x \u2581", "\ufb01 \uff21\u00bd\u0132", "\u00c4rger",
    "e\u0301e\u0301\u0301\u0301 \u1100\u1161\u11a8", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0915\u094d\u0937",
    "I'LL 'S \u017f'\u017f don'T", "``x'' ''", "\u4e2d\u6587\u3042\u30a2 x\u4e2dy", "\u0130\u01c5\u1e9e\u03a3",
    "word" * 30, "a\u00adb\u200bc\u2060d\ufeff", "end. Next , one ! n't 's", "\u0958\u0340\u212b", "  lead  trail  ",
    "\u0677\u0acd \u0915\u0acd\u0937 a\u094d",
]


def crc(lists):
    """Number of ids and CRC-32 of them as uint16."""
    ids = [i for one in lists for i in one]
    return [len(ids), zlib.crc32(array.array("H", ids).tobytes())]


def text_crc(text):
    return zlib.crc32(text.encode())


def unicode_text(first):
    codes = (c for c in range(first, first + CHUNK) if not 0xD800 <= c < 0xE000)
    return "".join(f"a{chr(c)}{chr(c)} {chr(c)}1\n" for c in codes)


def random_sums(encode):
    random = Random(3)
    return [crc(encode(random.text()) for _ in range(BUNCH)) for _ in range(BUNCHES)]


def expected(tokenizer):
    def encode(text, **how):
        return tokenizer.encode(text, add_special_tokens=False, **how).ids

    def plain(text):
        tokenizer.encode_special_tokens = True
        ids = encode(text)
        tokenizer.encode_special_tokens = False
        return ids

    texts = CASES + MORE
    pair = tokenizer.encode("to be", "or not")
    return {"plain": [crc([plain(text)]) for text in texts],
            "special": [crc([encode(text)]) for text in texts],
            "added": tokenizer.encode("to be").ids, "pair": pair.ids, "types": pair.type_ids,
            "decoded": [text_crc(tokenizer.decode(encode(text), skip_special_tokens=False))
                        for text in texts],
            "hidden": [text_crc(tokenizer.decode(encode(text))) for text in texts],
            "unicode": [crc([plain(unicode_text(first))]) for first in range(0, LAST, CHUNK)],
            "random": random_sums(plain)}


def steps():
    """The steps in tokenizers of single bytes: as JSON, with sums of the ids of all texts."""
    out = []
    for name, tokenizer in single_steps().items():
        content = json.loads(tokenizer.to_str())

        def encode(text, tokenizer=tokenizer):
            return tokenizer.encode(text).ids

        out.append({"name": name, "normalizer": content["normalizer"],
                    "pre_tokenizer": content["pre_tokenizer"],
                    "texts": crc(encode(text) for text in CASES + MORE),
                    "unicode": [crc([encode(unicode_text(first))])
                                for first in range(0, LAST, CHUNK)],
                    "random": random_sums(encode)})
    return {"vocab": content["model"]["vocab"], "list": out}


def main():
    OUT.mkdir(exist_ok=True)
    result = {"texts": CASES + MORE, "alphabet": [ord(c) for c in ALPHABET], "bunch": BUNCH,
              "chunk": CHUNK, "kinds": {}, "steps": steps()}
    for name, make in FAMILIES.items():
        tokenizer = make(TEXT, SIZES.get(name, 300))
        tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
        result["kinds"][name] = expected(tokenizer)
    path = OUT / "expected.json"
    path.write_text(json.dumps(result, separators=(",", ":")).replace("],[", "],\n[") + "\n")
    for file in sorted(OUT.iterdir()):
        print(file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
