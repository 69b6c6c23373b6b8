#!/usr/bin/env python3
"""Is nnlua faster than PyTorch at training GPT-2, or a Llama, on this machine's CPU? One command.

Both sides train the same model in turns, so that changes in the machine's speed affect both, in
float32 or, with --dtype bf16, nnlua in bf16 against PyTorch in float32 and with bf16 autocast.
PyTorch uses its best number of threads and a tuned malloc; its defaults are shown too.

    python3 tests/bench/gpt2_vs_torch.py
    python3 tests/bench/gpt2_vs_torch.py --model gpt2-medium --batch 2 --tokens 512 --compile
    python3 tests/bench/gpt2_vs_torch.py --model llama-15m --batch 16 --compile --dtype bf16
    python3 tests/bench/gpt2_vs_torch.py --model custom --layers 6 --heads 6 --embd 384 --batch 8
"""
import argparse
import json

from common import (BENCH, median, print_table, run_json, span, take_turns, torch_python,
                    was_quiet)

CUSTOM = {"layers": 12, "heads": 12, "embd": 768, "vocab": 50257}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="gpt2",
                        help="custom: a GPT-2 of --layers, --heads, --embd and --vocab")
    for size, default in CUSTOM.items():
        parser.add_argument(f"--{size}", type=int, help=f"of a custom model; default: {default}")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256, help="tokens in a sequence")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", default="best", help="of PyTorch; best: try, keep the best")
    parser.add_argument("--compile", action="store_true", help="torch.compile as a contender too")
    parser.add_argument("--python", help="an interpreter that has PyTorch")
    args = parser.parse_args()
    given = [size for size in CUSTOM if getattr(args, size) is not None]
    if given and args.model != "custom":
        parser.error(f"--{given[0]} is of a custom model; add --model custom")
    args.custom = {size: getattr(args, size) or default for size, default in CUSTOM.items()}
    return args


def contenders(args):
    sizes = {"model": args.model, "batch": args.batch, "tokens": args.tokens, "steps": args.steps}
    if args.model == "custom":
        sizes.update(args.custom)
    ours = ["./nnlua", "recipes/bench_gpt2.lua", "--json", f"dtype={args.dtype}"]
    ours += [f"{k}={v}" for k, v in sizes.items()]
    python = torch_python(args.python)
    theirs = [python, str(BENCH / "torch_gpt2.py"), "--json"]
    theirs += [word for k, v in sizes.items() for word in (f"--{k}", str(v))]
    if args.model == "custom":
        theirs += ["--context", str(args.tokens)]  # as many positions as nnlua's model

    def torch(*options):
        best = [] if args.threads == "best" else [args.threads]  # found in the first round

        def turn(_):
            result = run_json(theirs + ["--threads", best[0] if best else "best", *options])
            best[:] = [str(result["threads"])]
            return result
        return turn

    # "as it comes" shows the benefit of tuning PyTorch; the ratio does not use it.
    turns = {"nnlua": lambda _: run_json(ours), "torch": torch("--malloc", "keep"),
             "torch as it comes": torch("--malloc", "default")}
    if args.compile:
        turns["torch.compile"] = torch("--malloc", "keep", "--compile")
    if args.dtype == "bf16":
        bf16 = ("--malloc", "keep", "--dtype", "bf16")
        del turns["torch as it comes"]
        turns["torch bf16"] = torch(*bf16)
        if args.compile:
            turns["torch.compile bf16"] = torch(*bf16, "--compile")
    return turns


def main():
    args = parse()
    results = take_turns(contenders(args), args.rounds)
    speed = {name: median(runs, "tokens_per_s") for name, runs in results.items()}
    rival = max((name for name in speed if name != "nnlua"), key=speed.get)
    ratio = speed["nnlua"] / speed[rival]

    model = args.model
    if model == "custom":
        model += "".join(f", {size} {value}" for size, value in args.custom.items())
    print(f"\n{model}, batch {args.batch} x {args.tokens} tokens, {args.dtype}; "
          f"median of {args.rounds} rounds, {args.steps} steps each\n")
    print_table(["", "tokens/s", "GFLOP/s", "sgemm GFLOP/s", "threads"], [
        [name, span(runs, "tokens_per_s", 1), f"{median(runs, 'gflops'):.0f}",
         f"{median(runs, 'sgemm_gflops'):.0f}",
         str(runs[-1].get("threads", runs[-1].get("workers")))]
        for name, runs in results.items()])
    print(f"\nnnlua / {rival}: {ratio:.3f}")
    quiet = was_quiet(results)
    print(json.dumps({"benchmark": "gpt2_vs_torch", "ratio": round(ratio, 3), "against": rival,
                      "tokens_per_s": speed, "model": model, "dtype": args.dtype,
                      "batch": args.batch, "tokens": args.tokens, "steps": args.steps,
                      "rounds": args.rounds,
                      "torch": results["torch"][0]["torch"], "idle_machine": quiet}))


if __name__ == "__main__":
    main()
