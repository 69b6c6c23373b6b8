#!/usr/bin/env python3
"""Compares the ids of nnlua with those of tokenizers, for 100,000 random and real texts per kind.

    python3 tests/bench/tokenizer_sweep.py --text input.txt

Vocabularies are trained on the text and on random words of many scripts (tests/golden/
tokenizer_families.py). Kinds are tokenizers of model families, and tokenizers with one normalizer or
pre-tokenizer whose ids show the text behind it ("step NAME"; "pattern NAME" for the regular expressions
of tests/golden/split_patterns.py). SentencePiece's map of characters is the whole one, nmt_nfkc.
--only step, pattern or names select kinds. --files NAME=tokenizer.json adds others. Then the speed
of both, in turns, one core each.
--sentencepiece compares folders without a tokenizer.json instead: those with a tokenizer.model, with
the ids of sentencepiece, also for bytes that are not UTF-8; those with BERT's vocab.txt, with the ids
of transformers. Needs `pip install tokenizers sentencepiece protobuf transformers` in the Python
that runs it. Exits with status 1 if any ids differ.
"""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

from common import ROOT, print_table

sys.path.insert(0, str(ROOT / "tests/golden"))
from tokenizer_families import FAMILIES, pattern_steps, single_steps  # noqa: E402 pylint: disable=wrong-import-position

# Reads texts (a length of 4 bytes, then the text), writes for each its number of ids and the ids.
OURS = """
local ffi, text = require "ffi", io.open(arg[2], "rb"):read "*a"
local words, out, at, size = nn.tokenizer(arg[1]), io.open(arg[3], "wb"), 1, #text
while at <= size do
  local a, b, c = text:byte(at, at + 2)
  local length = a + 256 * b + 65536 * c
  local part = text:sub(at + 4, at + 3 + length)
  local ids, count = words:encode(part, nil, {special = arg[4] == "special"})
  local row = ffi.new("uint32_t[?]", count + 1)
  row[0] = count
  for i = 1, count do row[i] = ids[i - 1] end
  out:write(ffi.string(row, 4 * (count + 1)))
  at = at + 4 + length
end
out:close()
"""
SPEED = """
local text, words = io.open(arg[2], "rb"):read "*a", nn.tokenizer(arg[1])
local start = nn.now()
local _, count = words:encode(text)
local cold = nn.now() - start
start = nn.now()
words:encode(text)
print(count, cold, nn.now() - start)
"""
RANGES = [(0x20, 0x7F), (0xA0, 0x17F), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80),
          (0x1100, 0x1200), (0x1E00, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3400), (0x4E00, 0xA000),
          (0xAC00, 0xD7A4), (0xF900, 0xFE10), (0xFE00, 0x10000), (0x1D100, 0x1D800),
          (0x1F1E6, 0x1FB00), (0xE0000, 0xE01F0)]
SNIPPETS = ["'s", "'LL", "'\u017f", " ", "  ", "\n", "\r\n", "\t", "1234567", "\u00bd\u2167", "...", "<s>",
            "</s>", "[MASK]", "<mask>", "<|im_start|>", "<|endoftext|>", " nnlua ", "<think>", "\u2581", "``",
            "e\u0301", "\u200d", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\u0915\u094d\u0937", "\ufb01", "\u1100\u1161\u11a8",
            "\u00ad", "\u200b", "\ufeff", "\u0130", "<0x41>", "\x00", "\x7f", "\u2028", "    ", "a" * 70, "\r\n\r\n",
            " \n  ", "\u6f22\u5b57", "IMGIMGACIZ"]


def real_texts(text, rng, count):
    """Stretches of the given text and of this repository's files, from anywhere."""
    sources = [text] + [path.read_text() for folder in ("engine", "lua", "docs", "tests")
                        for path in (ROOT / folder).rglob("*.*")
                        if path.suffix in (".cc", ".lua", ".md", ".py")]
    for _ in range(count):
        source = rng.choice(sources)
        first = rng.randrange(max(1, len(source)))
        yield source[first:first + rng.randrange(1, 200)]


def random_text(rng):
    kind, parts = rng.randrange(4), []
    for _ in range(rng.randrange(1, 30)):
        if kind == 0:
            code = rng.randrange(0x110000 - 0x800)
            parts.append(chr(code + 0x800 if code >= 0xD800 else code))
        elif kind == 1:
            low, high = rng.choice(RANGES)
            parts.append(chr(rng.randrange(low, high)))
        elif kind == 2:
            parts.append(rng.choice(SNIPPETS))
        else:
            low, high = RANGES[rng.choice((0, 0, 1, 3, 10))]
            parts.append(rng.choice(SNIPPETS) if rng.randrange(4) == 0 else
                         "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(8))))
    return "".join(parts)


def training_text(text, rng):
    words = []
    for low, high in RANGES[:12]:
        letters = [chr(c) for c in range(low, high) if unicodedata.category(chr(c))[0] in "LMN"]
        for _ in range(300 if letters else 0):
            words.append("".join(rng.choice(letters[:80]) for _ in range(rng.randrange(1, 7))))
    rng.shuffle(words)
    return text[:300000] + "\n" + "\n".join(" ".join(words[i:i + 8]) for i in range(0, len(words), 8))


def ours(nnlua, script, *arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write('local nn = require "nn"\n' + script)
        file.flush()
        return subprocess.run([*nnlua, file.name, *map(str, arguments)], check=True,
                              capture_output=True, text=True).stdout


def our_ids(nnlua, path, texts, folder, special):
    packed = [text if isinstance(text, bytes) else text.encode() for text in texts]
    (folder / "texts").write_bytes(b"".join(struct.pack("<I", len(b)) + b for b in packed))
    ours(nnlua, OURS, path, folder / "texts", folder / "ids", "special" if special else "plain")
    numbers = array.array("I", (folder / "ids").read_bytes())
    out, at = [], 0
    while at < len(numbers):
        out.append(list(numbers[at + 1:at + 1 + numbers[at]]))
        at += 1 + numbers[at]
    return out


def compare(name, encode, path, texts, nnlua, folder, special=True):
    """The number of texts for which nnlua's ids with the tokenizer at `path` differ from those of
    encode(text); prints the first."""
    got = our_ids(nnlua, path, texts, folder, special)
    different = 0
    for text, ids in zip(texts, got, strict=True):
        expected = encode(text)
        if ids != expected:
            different += 1
            if different == 1:
                print(f"{name}: {text!r}\n  expected {expected}\n  nnlua    {ids}")
    print(f"{name}: {len(texts)} texts, {different} differ", flush=True)
    return different


def speeds(name, tokenizer, text, nnlua, folder, rounds):
    """MB/s of both sides, a single text, first and again; medians."""
    (folder / "text").write_text(text)
    tokenizer.save(str(folder / "tokenizer.json"))
    size, mine, theirs = len(text.encode()) / 1e6, [], []
    for _ in range(rounds):
        _, cold, warm = ours(nnlua, SPEED, folder / "tokenizer.json", folder / "text").split()
        mine.append((size / float(cold), size / float(warm)))
        fresh, row = type(tokenizer).from_str(tokenizer.to_str()), []
        for _ in range(2):
            start = time.perf_counter()
            fresh.encode(text, add_special_tokens=False)
            row.append(size / (time.perf_counter() - start))
        theirs.append(row)
    middle = [statistics.median(column) for rows in (mine, theirs) for column in zip(*rows)]
    return [name, *(f"{value:.1f}" for value in middle), f"{middle[0] / middle[2]:.1f}"]


def without_special(tokenizer):
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def compare_folders(args, training, texts, rng, nnlua, place):
    """The number of texts whose ids differ, of all folders without a tokenizer.json."""
    import sentencepiece  # pylint: disable=import-outside-toplevel
    from sentencepiece_families import CASES, models, vocab_txt  # pylint: disable=import-outside-toplevel
    from transformers import BertTokenizerFast  # pylint: disable=import-outside-toplevel
    different = 0
    damaged = []
    for text in texts[::10]:
        raw = bytearray(text.encode())
        for _ in range(rng.randrange(1, 5)):
            raw.insert(rng.randrange(len(raw) + 1), rng.randrange(0x80, 0x100))
        damaged.append(bytes(raw))
    texts = [*texts, training]
    def fresh(name):
        folder = place / name.replace(" ", "_")
        folder.mkdir()
        return folder
    for name, make in models(training, args.vocab).items():
        if args.only and name not in args.only:
            continue
        folder = fresh(name)
        (folder / "tokenizer.model").write_bytes(make())
        oracle = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        different += compare(name, oracle.encode, folder, [*texts, *damaged], nnlua, place, False)
    lines = vocab_txt(training, args.vocab)
    for case, settings in CASES.items():
        name = "vocab.txt " + case
        if args.only and name not in args.only:
            continue
        folder = fresh(name)
        (folder / "vocab.txt").write_text(lines)
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        oracle = BertTokenizerFast(str(folder / "vocab.txt"), **settings)
        different += compare(name, without_special(oracle._tokenizer), folder, texts, nnlua, place)  # pylint: disable=protected-access
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--vocab", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of kinds, or their first word")
    parser.add_argument("--sentencepiece", action="store_true",
                        help="folders with tokenizer.model or vocab.txt instead")
    parser.add_argument("--files", nargs="*", default=[], help="NAME=tokenizer.json")
    parser.add_argument("--rounds", type=int, default=3, help="of the speed test; 0: none")
    parser.add_argument("--nnlua", default=str(ROOT / "nnlua"))
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rng, text = random.Random(args.seed), args.text.read_text()
    texts = [*real_texts(text, rng, args.count // 2),
             *(random_text(rng) for _ in range(args.count - args.count // 2))]
    training = training_text(text, rng)
    how = {"t5": {"rules": None}, "albert": {"rules": None}}
    makers = {name: lambda name=name, make=make: make(training, args.vocab, **how.get(name, {}))
              for name, make in FAMILIES.items()}
    for name, tokenizer in single_steps(rules=None).items():
        makers["step " + name] = lambda tokenizer=tokenizer: tokenizer
    for name, tokenizer in pattern_steps().items():
        makers["pattern " + name] = lambda tokenizer=tokenizer: tokenizer
    for item in args.files:
        name, path = item.split("=", 1)
        from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel
        makers[name] = lambda path=path: Tokenizer.from_file(path)
    different, rows, nnlua = 0, [], ["taskset", "-c", "0", args.nnlua]
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        if args.sentencepiece:
            different, makers = compare_folders(args, training, texts, rng, nnlua, place), {}
        for name, make in makers.items():
            if args.only and name not in args.only and name.split()[0] not in args.only:
                continue
            tokenizer, path = make(), place / "tokenizer.json"
            tokenizer.save(str(path))
            different += compare(name, without_special(tokenizer), path, texts, nnlua, place)
            if args.rounds and name.split()[0] not in ("step", "pattern"):
                rows.append(speeds(name, tokenizer, text, nnlua, place, args.rounds))
    if rows:
        print()
        print_table(["", "nnlua, MB/s", "again", "tokenizers, MB/s", "again", "ratio"], rows)
    print(json.dumps({"benchmark": "tokenizer_sweep", "texts": len(texts), "different": different}))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
