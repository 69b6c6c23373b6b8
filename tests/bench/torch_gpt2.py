"""Speed of training GPT-2 or a Llama with PyTorch on the CPU: the counterpart of recipes/bench_gpt2.lua.

Float32 or bf16 autocast, random tokens, a whole step: forward, loss, backward, clipping, AdamW. gpt2_vs_torch.py
calls it; by hand:  python tests/bench/torch_gpt2.py --model gpt2 --batch 4 --tokens 256
"""
import argparse
import json
import statistics

import torch

from torch_llama import Llama
from torch_model import (GPT2, adamw, keep_freed_memory, set_threads, sgemm_gflops, timed,
                         train_step)
from torch_sizes import MODELS, complete, flops_per_token


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=(*MODELS, "custom"), default="gpt2",
                        help="custom: a GPT-2 of --layers, --heads and --embd")
    for size in ("layers", "heads", "embd"):
        parser.add_argument(f"--{size}", type=int, help="instead of the model's")
    parser.add_argument("--vocab", type=int, help="50257, of a Llama 32000")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256, help="tokens in a sequence")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3, help="steps before those that count")
    parser.add_argument("--threads", default="best", help="a number, or best: try, keep the best")
    parser.add_argument("--malloc", choices=("keep", "default"), default="keep",
                        help="keep: freed memory stays with the process, which is faster")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32",
                        help="bf16: torch.autocast, with weights in f32")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    args = parser.parse_args()
    complete(args)
    if not (args.layers and args.heads and args.embd):
        parser.error("--model custom needs --layers, --heads and --embd")
    if args.tokens > args.context:
        parser.error(f"--tokens {args.tokens} is longer than --context {args.context}; raise it")
    if args.embd % args.heads:
        parser.error(f"--embd {args.embd} is not a multiple of --heads {args.heads}")
    return args


def main():
    args = parse()
    if args.malloc == "keep":
        keep_freed_memory()
    torch.manual_seed(1)
    if args.llama:
        model = Llama(args.layers, args.heads, args.embd, args.inner, args.vocab, args.context)
    else:
        model = GPT2(args.layers, args.heads, args.embd, args.vocab, args.context)
    loss_function = torch.compile(model.loss) if args.compile else model.loss
    if args.dtype == "bf16":
        loss_function = torch.autocast("cpu", torch.bfloat16)(loss_function)
    optimizer = adamw(model, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    ids = torch.randint(args.vocab, (args.batch, args.tokens + 1))
    ids, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step():
        return train_step(model, loss_function, optimizer, ids, targets).item()

    threads = set_threads(args.threads, step)
    for _ in range(args.warmup):
        step()
    sgemm = sgemm_gflops()
    median = statistics.median(timed(step) for _ in range(args.steps))
    loss = step()
    tokens_per_s = args.batch * args.tokens / median
    gflops = tokens_per_s * flops_per_token(args) / 1e9
    result = {"tokens_per_s": round(tokens_per_s, 1), "ms_per_step": round(1e3 * median, 1),
              "gflops": round(gflops, 1), "sgemm_gflops": round(sgemm, 1),
              "ratio": round(gflops / sgemm, 3), "threads": threads, "torch": torch.__version__,
              "compile": args.compile, "malloc": args.malloc, "loss": round(loss, 4)}
    sizes = ("model", "dtype", "layers", "heads", "embd", "vocab", "batch", "tokens", "steps")
    result.update({name: getattr(args, name) for name in sizes})
    if args.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{key:14s} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
