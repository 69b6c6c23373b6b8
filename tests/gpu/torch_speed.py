"""Training speed of GPT-2 in PyTorch on this GPU as one line of JSON: the counterpart of speed.lua.

    python tests/gpu/torch_speed.py --model gpt2 --batch 16 --tokens 1024 --steps 10 [--compile]

The usual fast configuration: float32 weights, bf16 autocast, TF32 allowed, scaled_dot_product_attention
(FlashAttention on recent GPUs), fused AdamW, clipping; eager or torch.compile. Use --device cpu with
small sizes for a rehearsal.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
from torch_model import GPT2, adamw, train_step  # noqa: E402
from torch_sizes import complete, flops_per_token  # noqa: E402


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "custom"], default="gpt2")
    for name in ("layers", "heads", "embd", "vocab"):
        parser.add_argument(f"--{name}", type=int, help="a custom model needs them all")
    for name, default in (("batch", 16), ("tokens", 1024), ("steps", 10), ("warmup", 4), ("product", 8192)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.model == "custom" and not (args.layers and args.heads and args.embd and args.vocab):
        parser.error("--model custom needs --layers, --heads, --embd and --vocab")
    complete(args)
    return args


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(device, function):
    wait(device)
    start = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - start


def product_rate(args):
    """FLOP/s of a bf16 product, the best of ten."""
    n = args.product
    a = torch.rand(n, n, device=args.device).bfloat16()
    return 2 * n ** 3 / min(seconds_of(args.device, lambda: a @ a) for _ in range(10))


def kernels_of(args, step):
    """Milliseconds per step of the fifteen longest kernels; {} without a GPU."""
    if args.device != "cuda":
        return {}
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        wait(args.device)
    times = {}
    for event in profile.key_averages():
        microseconds = getattr(event, "self_device_time_total", 0) or getattr(event, "self_cuda_time_total", 0)
        if microseconds:
            times[event.key[:60]] = round(microseconds / 1e3, 3)
    return dict(sorted(times.items(), key=lambda pair: -pair[1])[:15])


def main():
    args = parse()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = GPT2(args.layers, args.heads, args.embd, args.vocab, max(args.tokens, 1024)).to(args.device)
    compiled = torch.compile(model.loss) if args.compile else model.loss
    optimizer = adamw(model, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    ids = torch.randint(args.vocab, (args.batch, args.tokens + 1), device=args.device)
    ids, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def loss_function(ids, targets):
        with torch.autocast(args.device, dtype=torch.bfloat16):
            return compiled(ids, targets)

    def step():
        return train_step(model, loss_function, optimizer, ids, targets)

    started = seconds_of(args.device, lambda: [step() for _ in range(args.warmup)])
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = statistics.median(seconds_of(args.device, lambda: step().item()) for _ in range(args.steps))
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
    per_step = args.batch * args.tokens
    print(json.dumps({
        "tokens_per_s": per_step / seconds, "ms_per_step": seconds * 1e3,
        "flops_per_s": flops_per_token(args) * per_step / seconds, "product_flops_per_s": product_rate(args),
        "peak_bytes": peak, "loss": step().item(), "warmup_s": started,
        "versions": f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        "kinds": kernels_of(args, step)}))


main()
