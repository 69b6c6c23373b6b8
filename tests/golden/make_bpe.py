"""Writes bpe.json: what the tokenizers library makes of hard texts, for tests/lua/text/tokenizer.lua.

A byte-level BPE is learned from TEXT by that library, and texts are encoded with it: words, white
space, contractions, every code point of Unicode between a letter, a number and a sign, and 10,000
random texts. That library takes no invalid UTF-8; for 10,000 texts with such bytes the ids are those
of tiktoken, which merges bytes in the same way. All are texts that are one piece (signs and invalid
bytes only), since tiktoken does not split behind an invalid byte. With a GPT-2 vocabulary and a
Shakespeare text (--gpt2 FOLDER --text FILE) the ids of all are noted for it as well.
"""
import argparse
import array
import json
import pathlib
import zlib

import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).parent / "bpe.json"
SIZE = 420
CHUNK = 4096  # code points whose ids are summed up in one CRC-32
TEXT = """\
A tile is a block of a tensor, and a task is a kernel on tiles. The engine doesn't know what a model
is; the model doesn't know what a tile is. That's why a model that fits one tile and a model that
fits a thousand tiles are the same model, and why the engine may cut, copy, move and drop tiles as it
likes.  Numbers: 1, 12, 123, 1234 and 12345; 3.14159 and 2.71828; 1e-3 and 1e-4.
    for step in run:steps() do
        optim.lr = lr(step)
        run:record(train_step(data.train:batch()))
    end
Une tuile est un bloc d'un tenseur. Eine Kachel ist ein Block eines Tensors, größer als ein Element.
Плитка - это блок тензора, а задача - это ядро над плитками. タイルはテンソルのブロックです。タイルは小さい。
"""
CASES = [
    "", " ", "  ", "\n", "a", " a", "a ", "  a", "\ta", "a\n\nb", "a \n b", " \n", "\r\n\r\n", "   x   ",
    "it's they're we've I'm you'll he'd don't IT'S 's 'll ' 'x ''s x'y", "'", "''", "a'", "'re", "'r",
    "12345 1,234.5 ½ ² Ⅷ ٣٤ a1b2", "foo_bar(baz)[0] != {x: -1};", "...!?--", " ...", "a  b   c    d",
    "größer Плитка タイル 日本語テキスト 한국어 עברית العربية हिन्दी ไทย", "e\u0301 \u00e9 n\u0303",
    "\u00a0x \u00a0 x\u2003y\u3000z\u200bq\ufeff", "\U0001f600\U0001f469\u200d\U0001f4bb ok",
    "\x00\x01\x7f\x80", "tile" * 40, "a" * 300, " " * 70, "ab" * 100 + "\n" * 20 + "x",
    "<|endoftext|>", "x<|endoftext|>y", "\u0378\ue000\uffff\U0010ffff", "\u1c89\ua7cb\U00010d40",
]


# Random texts, in bunches of 1000: characters, and units of which none is or becomes valid UTF-8.
BUNCHES = 10
ALPHABET = " \n\t\r'sStTrRevVmMlLdD019.-_\u00e9\u4e2d\u0661\u00a0\u3000\u0301\u2028"
INVALID = ["ff", "fe21", "c0af", "c121", "e28228", "e2215f", "eda080", "edbfbf2d", "f4908080", "e080af",
           "f08080af", "f5", "80", "bfbf", "2e", "3d3d", "c33b", "f09f983a"]


def learn():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=SIZE, min_frequency=2, show_progress=False, special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def merges_of(tokenizer):
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [" ".join(merge) if isinstance(merge, list) else merge for merge in merges]


def summary(ids):
    """Number of ids and CRC-32 of them as uint16."""
    return [len(ids), zlib.crc32(array.array("H", ids).tobytes())]


def unicode_text(first):
    """Every code point from `first` on between a letter, a number, a sign and a space."""
    codes = (c for c in range(first, first + CHUNK) if not 0xD800 <= c < 0xE000)
    return "".join(f"a{chr(c)}1{chr(c)}! {chr(c)} {chr(c)}{chr(c)}b\n" for c in codes)


class Random:
    """Numerical Recipes' linear congruence, which tests/lua/text/tokenizer.lua repeats."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return self.state * n >> 32

    def character(self, kind):
        if kind < 2:
            code = self.below([0x110000 - 0x800, 0x3000][kind])
            return chr(code + 0x800 if code >= 0xD800 else code)
        if kind == 3 and self.below(3):
            return chr(97 + self.below(26))
        return ALPHABET[self.below(len(ALPHABET))]

    def text(self):
        kind = self.below(4)
        return "".join(self.character(kind) for _ in range(self.below(40)))

    def invalid(self):
        return b"".join(bytes.fromhex(INVALID[self.below(len(INVALID))])
                        for _ in range(1 + self.below(20)))


def bunches(seed, draw, encode):
    """Summaries of the ids of random texts; `draw` takes one from the random numbers."""
    random = Random(seed)
    return [summary([i for _ in range(1000) for i in encode(draw(random))]) for _ in range(BUNCHES)]


def bytes_of(name):
    """The bytes that a token's name in a vocabulary file stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    return bytes(byte_of[c] for c in name)


def random_sums(tokenizer):
    ranks = {bytes_of(name): rank for name, rank in tokenizer.get_vocab().items()
             if name != "<|endoftext|>"}
    reference = tiktoken.Encoding("x", pat_str=r"[\s\S]+", mergeable_ranks=ranks, special_tokens={})
    return {"random": bunches(1, Random.text, lambda text: tokenizer.encode(text).ids),
            # pylint: disable-next=protected-access
            "invalid": bunches(2, Random.invalid, reference._encode_single_piece)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gpt2", type=pathlib.Path, help="folder of GPT-2's vocab.json, merges.txt")
    parser.add_argument("--text", type=pathlib.Path, help="tiny Shakespeare")
    args = parser.parse_args()
    tokenizer = learn()
    result = {"size": tokenizer.get_vocab_size(), "text": TEXT, "merges": merges_of(tokenizer),
              "cases": [{"text": text, "ids": tokenizer.encode(text).ids} for text in CASES],
              "chunk": CHUNK, "alphabet": [ord(c) for c in ALPHABET], "units": INVALID,
              **random_sums(tokenizer),
              "unicode": [summary(tokenizer.encode(unicode_text(first)).ids)
                          for first in range(0, 0x110000, CHUNK)]}
    if args.gpt2:
        gpt2 = Tokenizer(models.BPE.from_file(str(args.gpt2 / "vocab.json"),
                                              str(args.gpt2 / "merges.txt")))
        gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        result["gpt2"] = {
            **random_sums(gpt2),
            "shakespeare": summary(gpt2.encode(args.text.read_text()).ids),
            "cases": [gpt2.encode(text).ids for text in CASES],
            "unicode": [summary(gpt2.encode(unicode_text(first)).ids)
                        for first in range(0, 0x110000, CHUNK)]}
    OUT.write_text(json.dumps(result, separators=(",", ":")).replace("],[", "],\n[")
                   .replace('},{', '},\n{') + "\n")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
