#!/usr/bin/env python3
"""Compares nnlua with transformers: exchanges models in both directions, and generates text.

transformers saves random GPT-2 models of 4 layers and of 124M parameters; nnlua loads them. The
script compares logits and 200 greedy tokens from one prompt. nnlua changes the weights and saves the
model, in one file and in shards; transformers loads both, and logits are compared again. Then both
generate text with the 124M model in turns. The status is 1 if logits differ by more than 1e-4 or a
token differs; speed is only reported.

    python3 tests/bench/generate_vs_transformers.py

Needs torch, transformers and safetensors in the Python that runs it, or in that of --python.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from common import median, print_table, run_json, span, take_turns, was_quiet

LIMIT = 1e-4
SHAPES = {"4 layers": "n_layer=4, n_head=4, n_embd=128, vocab_size=5000, n_positions=512",
          "124M": ""}
MAKE = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(7)
model = GPT2LMHeadModel(GPT2Config({shape}))
with torch.no_grad():
    for p in model.parameters():
        p.add_(torch.randn_like(p) * 0.05)
model.save_pretrained(sys.argv[1] + "/theirs")
print("{{}}")
"""
THERE_AND_BACK = """
local folder = "{folder}"
local model, prompt = nn.load_hf(folder .. "/theirs"), {{}}
for i = 1, 16 do prompt[i] = 31 * i end
local ids = nn.tensor({{prompt}}, {{dtype = "i32"}})
local greedy = nn.generate(model, prompt, {{tokens = {tokens}, temperature = 0}})
local bytes = 0
nn.no_grad(function()
  local loaded = model(ids)
  nn.seed(3)
  for _, p in ipairs(model:parameters()) do
    p.tensor:add_(nn.randn(p.tensor.shape) * 0.02)
    bytes = bytes + p.tensor:bytes()
  end
  nn.save_safetensors(folder .. "/ours.safetensors", {{
    loaded = loaded, changed = model(ids), greedy = nn.tensor(greedy, {{dtype = "i32"}})}})
end)
nn.save_hf(folder .. "/whole", model)
nn.save_hf(folder .. "/shards", model, nil, {{shard_bytes = math.ceil(bytes / 3)}})
print "{{}}"
"""
COMPARE = """
import json, pathlib, sys, torch
from safetensors.torch import load_file
from transformers import GPT2LMHeadModel
folder, tokens = pathlib.Path(sys.argv[1]), int(sys.argv[2])
ours = load_file(folder / "ours.safetensors")
ids = torch.tensor([[31 * i for i in range(1, 17)]])
def model(name):
    return GPT2LMHeadModel.from_pretrained(folder / name).eval()
@torch.no_grad()
def difference(name, expected):
    return (model(name)(ids).logits - expected).abs().max().item()
greedy = model("theirs").generate(ids, max_new_tokens=tokens, do_sample=False, eos_token_id=None,
                                  pad_token_id=0)[0]
print(json.dumps({"read": difference("theirs", ours["loaded"]),
                  "written": difference("whole", ours["changed"]),
                  "shards": difference("shards", ours["changed"]),
                  "files": len(list((folder / "shards").glob("*.safetensors"))),
                  "same_tokens": greedy.tolist() == ours["greedy"].tolist()}))
"""
THEIRS = """
import json, sys, time, torch
from transformers import GPT2LMHeadModel
folder, tokens = sys.argv[1], int(sys.argv[2])
model = GPT2LMHeadModel.from_pretrained(folder + "/theirs").eval()
ids = torch.tensor([[31 * i for i in range(1, 17)]])
best = 0
for threads in {1, torch.get_num_threads()}:
    torch.set_num_threads(threads)
    for _ in range(2):
        start = time.perf_counter()
        out = model.generate(ids, max_new_tokens=tokens, do_sample=False, eos_token_id=None,
                             pad_token_id=0)
        best = max(best, tokens / (time.perf_counter() - start))
print(json.dumps({"tokens_per_s": best}))
"""
OURS = """
local model, prompt, best = nn.load_hf "{folder}/theirs", {{}}, 0
for i = 1, 16 do prompt[i] = 31 * i end
for _ = 1, 3 do
  local start = nn.now()
  nn.generate(model, prompt, {{tokens = {tokens}, temperature = 0}})
  best = math.max(best, {tokens} / (nn.now() - start))
end
print(require("nn.io.files").json {{tokens_per_s = best}})
"""


def compare(python, folder, shape, tokens):
    """Creates a model in the folder and exchanges it in both directions; returns differences."""
    run_json([python, "-c", MAKE.format(shape=shape), folder])
    run_json(["./nnlua", "-e", THERE_AND_BACK.format(folder=folder, tokens=tokens)])
    return run_json([python, "-c", COMPARE, folder, str(tokens)])


def speed(python, folder, tokens, rounds):
    return take_turns({
        "nnlua": lambda _: run_json(["./nnlua", "-e", OURS.format(folder=folder, tokens=tokens)]),
        "transformers": lambda _: run_json([python, "-c", THEIRS, folder, str(tokens)])}, rounds)


def print_comparisons(found):
    print("\nLargest difference of logits between nnlua and transformers\n")
    print_table(["model", "saved by transformers", "by nnlua", "by nnlua in shards", "tokens"],
                [[name, f"{c['read']:.1e}", f"{c['written']:.1e}",
                  f"{c['shards']:.1e} ({c['files']} files)",
                  "the same" if c["same_tokens"] else "DIFFERENT"] for name, c in found.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="of the speed test; 0: none")
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    found, results = {}, {}
    with tempfile.TemporaryDirectory(prefix="nnlua-gpt2-") as scratch:
        for name, shape in SHAPES.items():
            folder = pathlib.Path(scratch) / name.replace(" ", "-")
            folder.mkdir()
            found[name] = compare(args.python, str(folder), shape, args.tokens)
        if args.rounds:
            results = speed(args.python, str(folder), args.tokens, args.rounds)
    print_comparisons(found)
    apart = max(c[key] for c in found.values() for key in ("read", "written", "shards"))
    same = all(c["same_tokens"] for c in found.values())
    summary = {"benchmark": "generate_vs_transformers", "logits_difference": apart,
               "same_tokens": same}
    if results:
        print(f"\nGPT-2 124M, float32, one prompt of 16 tokens, {args.tokens} more\n")
        print_table(["", "tokens/s"], [[name, span(runs, "tokens_per_s", 1)]
                                       for name, runs in results.items()])
        ratio = (median(results["nnlua"], "tokens_per_s")
                 / median(results["transformers"], "tokens_per_s"))
        print(f"\nnnlua / transformers: {ratio:.2f}")
        summary.update(ratio=round(ratio, 3), idle_machine=was_quiet(results))
    print(json.dumps(summary))
    if not (apart <= LIMIT and same):
        sys.exit(f"logits differ by more than {LIMIT:g}, or tokens differ")


if __name__ == "__main__":
    main()
