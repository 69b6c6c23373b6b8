#!/usr/bin/env python3
"""Does nnlua learn a small character model as well as PyTorch, and in less time?

Both train nanoGPT's CPU setting on the same text, in turns; the seed is the round's number. PyTorch
computes in float32, nnlua in bf16 where the machine computes it faster. Further settings for nnlua
can follow "--":

    python3 tests/bench/char_vs_torch.py --text input.txt -- model.dtype=f32
"""
import argparse
import json
import pathlib
import tempfile

from common import (BENCH, median, print_table, run, run_json, span, take_turns, torch_python,
                    was_quiet)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, type=pathlib.Path,
                        help="a UTF-8 text, such as tiny Shakespeare")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", help="an interpreter that has PyTorch")
    parser.add_argument("settings", nargs="*", metavar="a.b=v",
                        help="further settings for nnlua")
    args = parser.parse_args()
    if not args.text.is_file():
        parser.error(f"--text {args.text}: no such file; give the path of a text")
    args.text = args.text.resolve()
    return args


def train_nnlua(text, settings, number):
    """One training run; the "done" line of its metrics."""
    with tempfile.TemporaryDirectory(prefix="nnlua-char-") as folder:
        out = pathlib.Path(folder, "run")
        _, others = run(["./nnlua", "recipes/gpt2_train.lua", "preset=char", f"data.text={text}",
                         f"out={out}", f"seed={number}", *settings])
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    done = [line for line in lines if line.get("event") == "done"]
    if not done:
        raise SystemExit('metrics.jsonl has no line with "event": "done"; did training end early?')
    return {**done[-1], "others": others}


def main():
    args = parse()
    theirs = [torch_python(args.python), str(BENCH / "torch_char.py"), "--text", str(args.text)]
    results = take_turns({
        "nnlua": lambda number: train_nnlua(args.text, args.settings, number),
        "torch": lambda number: run_json(theirs + ["--seed", str(number)])}, args.rounds)
    medians = {name: {key: median(runs, key) for key in ("val_loss", "train_seconds")}
               for name, runs in results.items()}
    ratio = medians["torch"]["train_seconds"] / medians["nnlua"]["train_seconds"]

    print(f"\n{args.text.name}, 4 layers x 128, 2000 steps of 12 x 64 characters; "
          f"median of {args.rounds} rounds\n")
    print_table(["", "validation loss", "seconds to train"], [
        [name, span(runs, "val_loss", 4), span(runs, "train_seconds", 1)]
        for name, runs in results.items()])
    print(f"\nspeed of nnlua / torch: {ratio:.3f}")
    quiet = was_quiet(results)
    print(json.dumps({"benchmark": "char_vs_torch", "ratio": round(ratio, 3), **medians,
                      "rounds": args.rounds, "torch_version": results["torch"][0]["torch"],
                      "idle_machine": quiet}))


if __name__ == "__main__":
    main()
