#!/usr/bin/env python3
"""Generating text with a cache: tokens/s beside transformers, and the same tokens.

A random GPT-2 of the 124M shape is saved by transformers and read by both; each generates the
likeliest tokens from one prompt, in turns.

    python3 tests/bench/generate_vs_transformers.py

Needs torch, transformers and safetensors in the Python that it is started with, or in --python's.
"""
import argparse
import json
import tempfile

from common import print_table, run_json, span, take_turns, median

MAKE = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(7)
model = GPT2LMHeadModel(GPT2Config())
with torch.no_grad():
    for p in model.parameters():
        p.add_(torch.randn_like(p) * 0.05)
model.save_pretrained(sys.argv[1])
print("{}")
"""
THEIRS = """
import json, sys, time, torch
from transformers import GPT2LMHeadModel
folder, tokens = sys.argv[1], int(sys.argv[2])
model = GPT2LMHeadModel.from_pretrained(folder).eval()
ids = torch.tensor([[31 * i for i in range(1, 17)]])
best = 0
for threads in {1, torch.get_num_threads()}:
    torch.set_num_threads(threads)
    for _ in range(2):
        start = time.perf_counter()
        out = model.generate(ids, max_new_tokens=tokens, do_sample=False, eos_token_id=None,
                             pad_token_id=0)
        best = max(best, tokens / (time.perf_counter() - start))
with torch.no_grad():
    logits = model(ids).logits[0, -1]
print(json.dumps({"tokens_per_s": best, "ids": out[0].tolist(), "logits": logits.tolist()}))
"""
OURS = """
local model = nn.load_hf "{folder}"
local prompt = {{}}
for i = 1, 16 do prompt[i] = 31 * i end
local best, out = 0, nil
for _ = 1, 3 do
  local start = nn.now()
  out = nn.generate(model, prompt, {{tokens = {tokens}, temperature = 0}})
  best = math.max(best, {tokens} / (nn.now() - start))
end
local logits = nn.no_grad(function() return model(nn.tensor({{prompt}}, {{dtype = "i32"}})) end)
print(require("nn.files").json {{tokens_per_s = best, ids = out,
                                logits = logits:slice(2, 16, 16):reshape(-1):table()}})
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="python3")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nnlua-gpt2-") as folder:
        run_json([args.python, "-c", MAKE, folder])
        ours = OURS.format(folder=folder, tokens=args.tokens)
        results = take_turns({
            "nnlua": lambda _: run_json(["./nnlua", "-e", ours]),
            "transformers": lambda _: run_json([args.python, "-c", THEIRS, folder,
                                                str(args.tokens)])}, args.rounds)
    print(f"\nGPT-2 124M, float32, one prompt of 16 tokens, {args.tokens} more\n")
    print_table(["", "tokens/s"], [[name, span(runs, "tokens_per_s", 1)]
                                   for name, runs in results.items()])
    a, b = results["nnlua"][0], results["transformers"][0]
    difference = max(abs(x - y) for x, y in zip(a["logits"], b["logits"]))
    ratio = median(results["nnlua"], "tokens_per_s") / median(results["transformers"],
                                                              "tokens_per_s")
    print(f"\nnnlua / transformers: {ratio:.2f}; logits differ by at most {difference:.1e}; "
          f"{'the same' if a['ids'] == b['ids'] else 'other'} tokens")
    print(json.dumps({"benchmark": "generate_vs_transformers", "ratio": round(ratio, 3),
                      "logits_difference": difference, "same_tokens": a["ids"] == b["ids"]}))


if __name__ == "__main__":
    main()
