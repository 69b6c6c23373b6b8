#!/usr/bin/env python3
"""Speed of BPE encoding, compared with tokenizers and tiktoken: one core each, in turns.

    python3 tests/bench/tokenizer_speed.py --vocab FOLDER --text input.txt

FOLDER contains GPT-2's vocab.json and merges.txt. Needs `pip install tokenizers tiktoken` in the
Python that runs it, or in that of --python.
"""
import argparse
import json
import pathlib
import sys

from common import print_table, run_json, span, take_turns

OURS = """
local text, tokenizer = io.open("{text}"):read "*a", nn.tokenizer "{vocab}"
local start = nn.now()
local _, count = tokenizer:encode(text)
local cold = nn.now() - start
start = nn.now()
tokenizer:encode(text)
print(require("nn.io.files").json {{tokens = count, first = #text / cold / 1e6,
                                again = #text / (nn.now() - start) / 1e6}})
"""
THEIRS = """
import json, os, sys, time
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
name, vocab, text = sys.argv[1:]
text = open(text, newline="").read()
if name == "tokenizers":
    from tokenizers import Tokenizer, models, pre_tokenizers
    t = Tokenizer(models.BPE.from_file(f"{vocab}/vocab.json", f"{vocab}/merges.txt"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encode = lambda: t.encode(text).ids
else:
    import tiktoken
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(b): b for b in printable}
    byte_of |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    ranks = {bytes(byte_of[c] for c in token): rank for token, rank in
             json.load(open(f"{vocab}/vocab.json")).items() if token != "<|endoftext|>"}
    t = tiktoken.Encoding("gpt2", mergeable_ranks=ranks, special_tokens={}, pat_str=
        r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s")
    encode = lambda: t.encode_ordinary(text)
times = []
for _ in range(2):
    start = time.perf_counter()
    count = len(encode())
    times.append(time.perf_counter() - start)
size = len(text.encode())
print(json.dumps({"tokens": count, "first": size / times[0] / 1e6, "again": size / times[1] / 1e6}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocab", required=True, type=pathlib.Path)
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has both libraries")
    args = parser.parse_args()
    vocab, text = str(args.vocab.resolve()), str(args.text.resolve())
    pin = ["taskset", "-c", "0"]

    def theirs(name):
        return lambda _: run_json(pin + [args.python, "-c", THEIRS, name, vocab, text])

    results = take_turns({
        "nnlua": lambda _: run_json(pin + ["./nnlua", "-e", OURS.format(text=text, vocab=vocab)]),
        "tokenizers": theirs("tokenizers"), "tiktoken": theirs("tiktoken")}, args.rounds)
    counts = {name: runs[0]["tokens"] for name, runs in results.items()}
    print(f"\n{args.text.name}: {counts}\n")
    print_table(["", "MB/s, first time", "MB/s, again"], [
        [name, span(runs, "first", 1), span(runs, "again", 1)] for name, runs in results.items()])
    print(json.dumps({"benchmark": "tokenizer_speed", "tokens": counts, **{
        name: {key: round(sorted(r[key] for r in runs)[len(runs) // 2], 2)
               for key in ("first", "again")} for name, runs in results.items()}}))


if __name__ == "__main__":
    main()
