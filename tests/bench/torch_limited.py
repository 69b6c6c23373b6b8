"""What PyTorch does with a model that needs more memory than it may use: torch_gpt2.py in a control group with a hard
limit, without swap and, with --swap FILE, with a swap file (needs root; the file is removed at the end).

    python3 tests/bench/torch_limited.py --limit 6GB --model gpt2-xl --tokens 32 --python VENV/bin/python
    python3 tests/bench/torch_limited.py --limit 6GB --model gpt2-xl --tokens 32 --swap /scratch/swap --swap-size 24GB
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"MB": 10 ** 6, "GB": 10 ** 9}
NO_GROUP, NO_TIME = 77, 124


def size(text):
    """Bytes of "6GB" or "500MB"."""
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text[:-len(unit)]) * factor)
    raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 6GB")


def train(args, swap):
    """Runs torch_gpt2.py in the limit and prints how it ends."""
    train_step = [args.python, HERE / "torch_gpt2.py", "--model", args.model, "--batch", "1", "--tokens",
                  str(args.tokens), "--steps", "1", "--warmup", "0", "--threads", "2", "--json"]
    command = [HERE.parent / "limited", str(args.limit), "timeout", "-k", "1", str(args.patience), *train_step]
    start = time.time()
    done = subprocess.run(command, env={**os.environ, "SWAP": str(swap)}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode == NO_GROUP:
        sys.exit(done.stderr)
    usage = [line for line in done.stderr.splitlines() if line.startswith("limited: ")][-1]
    seconds = time.time() - start
    if done.returncode == 0:
        end = done.stdout.strip()
    elif done.returncode == NO_TIME or seconds >= args.patience:  # timeout may have needed SIGKILL
        end = "no step ended"
    else:
        end = f"ended with status {done.returncode}"
    print(f"swap of {swap / 1e9:.1f} GB: {end} after {seconds:.0f} s\n  {usage}")


def with_swap(args):
    path = pathlib.Path(args.swap)
    if path.exists():
        sys.exit(f"{path} exists; give the path of a new file")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    is_on = False
    try:
        subprocess.run(["fallocate", "-l", str(args.swap_size), path], check=True)
        path.chmod(0o600)
        subprocess.run(["mkswap", path], check=True, stdout=subprocess.DEVNULL)
        if subprocess.run(["swapon", path]).returncode:
            sys.exit("swap cannot be switched on here")
        is_on = True
        train(args, args.swap_size)
    finally:
        if is_on:
            subprocess.run(["swapoff", path], check=True)  # keeps the file if this fails
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--limit", type=size, default=size("6GB"), help="memory of the control group")
    parser.add_argument("--model", default="gpt2-xl")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch")
    parser.add_argument("--swap", help="path of a swap file to create")
    parser.add_argument("--swap-size", type=size, default=size("24GB"))
    parser.add_argument("--patience", type=int, default=3600, help="seconds for a run")
    args = parser.parse_args()
    train(args, 0)
    if args.swap:
        with_swap(args)


if __name__ == "__main__":
    main()
