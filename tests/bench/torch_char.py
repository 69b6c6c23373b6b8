"""A small character model trained with PyTorch: nanoGPT's CPU setting for Shakespeare.

The other side of `recipes/gpt2_train.lua preset=char`: same model, data split, schedule and
optimizer, so that both the loss and the seconds can be compared. char_vs_torch.py calls it.
"""
import argparse
import json
import math
import pathlib
import time

import torch

from torch_model import GPT2, adamw, keep_freed_memory, set_threads, train_step

LAYERS, HEADS, EMBD, CONTEXT, BATCH = 4, 4, 128, 64, 12
STEPS, WARMUP, LR, MIN_LR, BETAS, DECAY = 2000, 100, 1e-3, 1e-4, (0.9, 0.99), 0.1
EVAL_BATCHES = 200


def load(path):
    """(train ids, validation ids, vocabulary size): sorted characters, split at 90 %."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    index = {char: i for i, char in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[char] for char in text])
    split = int(0.9 * len(ids))
    if len(ids) - split <= CONTEXT:
        raise SystemExit(f"{path}: {len(ids)} characters are too few; a tenth of the text must be "
                         f"longer than the context of {CONTEXT}. Give a longer text")
    return ids[:split], ids[split:], len(index)


def random_batch(ids):
    starts = torch.randint(len(ids) - CONTEXT, (BATCH, 1))
    window = ids[starts + torch.arange(CONTEXT + 1)]
    return window[:, :-1], window[:, 1:]


def lr_at(step, steps):
    """Linear warm-up, then a cosine down to MIN_LR; step counts from 0."""
    if step < WARMUP:
        return LR * (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / max(1, steps - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * progress)) * (LR - MIN_LR)


@torch.no_grad()
def random_loss(model, ids):
    return sum(model.loss(*random_batch(ids)).item() for _ in range(EVAL_BATCHES)) / EVAL_BATCHES


@torch.no_grad()
def full_loss(model, ids):
    """Mean over consecutive windows of CONTEXT tokens, without an incomplete last window."""
    count = (len(ids) - 1) // CONTEXT
    inputs = ids[:count * CONTEXT].view(count, CONTEXT)
    targets = ids[1:count * CONTEXT + 1].view(count, CONTEXT)
    parts = zip(inputs.split(64), targets.split(64))
    return sum(model.loss(x, y).item() * len(x) for x, y in parts) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="a UTF-8 text, such as tiny Shakespeare")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", default="best", help="a number, or best: try, keep the best")
    args = parser.parse_args()
    keep_freed_memory()
    train, val, vocab = load(args.text)

    def fresh():
        torch.manual_seed(args.seed)
        model = GPT2(LAYERS, HEADS, EMBD, vocab, CONTEXT)
        return model, adamw(model, LR, BETAS, DECAY)

    trial = fresh()
    threads = set_threads(args.threads, lambda: [
        train_step(trial[0], trial[0].loss, trial[1], *random_batch(train)) for _ in range(30)])
    model, optimizer = fresh()
    start = time.perf_counter()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, args.steps)
        train_step(model, model.loss, optimizer, *random_batch(train))
    seconds = time.perf_counter() - start
    print(json.dumps({
        "val_loss": round(full_loss(model, val), 4), "train_seconds": round(seconds, 2),
        "val_loss_random": round(random_loss(model, val), 4),
        "tokens_per_s": round(args.steps * BATCH * CONTEXT / seconds), "threads": threads,
        "torch": torch.__version__, "steps": args.steps, "seed": args.seed, "vocab": vocab,
        "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
