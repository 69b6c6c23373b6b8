"""Shared by the comparisons: finds or installs PyTorch, runs programs in turns, prints tables.

Only the standard library is imported here, so that the comparisons start with any Python 3.
"""
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = pathlib.Path("tests/bench")
VENV = ROOT / ".deps" / "torch-venv"
# Hides GPUs and settings of the environment: each side chooses its own kernels and threads.
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "",
               **{name: value for name, value in os.environ.items()
                  if not name.startswith(("OPENBLAS_", "MKL_", "OMP_", "CUDA_VISIBLE"))}}
QUIET = 0.1  # cores that other processes may use without a warning


def torch_python(given=None):
    """The interpreter for the PyTorch side; creates a venv if no interpreter has PyTorch."""
    for python in [given] if given else [sys.executable, str(VENV / "bin" / "python")]:
        if has_torch(python):
            return python
    if given:
        sys.exit(f"{given} cannot import torch; give another --python, or none to have one made")
    requirements = ROOT / BENCH / "requirements.txt"
    if sys.version_info < (3, 11) or platform.machine() not in ("x86_64", "AMD64"):
        sys.exit(f"{requirements.relative_to(ROOT)} is for Python 3.11 or later on x86-64; "
                 "install PyTorch yourself and name its interpreter with --python")
    say(f"no PyTorch found: installing it in {VENV.relative_to(ROOT)} (2.5 GB to download)")
    try:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(VENV / "bin" / "pip"), "install", "--quiet", "--no-deps",
                        "-r", str(requirements)], check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        sys.exit(f"could not install PyTorch: {error}\nOn Debian and Ubuntu a venv needs the "
                 "package python3-venv. Or install PyTorch yourself and name its interpreter with "
                 "--python")
    if not has_torch(str(VENV / "bin" / "python")):
        sys.exit(f"PyTorch in {VENV} does not import; see what this says:\n"
                 f"    {VENV}/bin/python -c 'import torch'\nthen delete {VENV} and try again")
    return str(VENV / "bin" / "python")


def has_torch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0
    except OSError:
        return False


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command):
    """Runs a command at the root; returns its output and the cores that other processes used."""
    say("  " + " ".join(command))
    busy, own, start = busy_seconds(), own_seconds(), time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(command)}\nended with status {done.returncode}; "
                 "run it by itself, the reason is above")
    spent = (busy_seconds() - busy) - (own_seconds() - own)
    return done.stdout, max(0.0, spent / (time.perf_counter() - start))


def run_json(command):
    """The last JSON line that a command prints, plus "others": cores that other processes used."""
    output, others = run(command)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{output}\n{' '.join(command)}\nprinted no JSON line; did an option change?")
    return {**json.loads(lines[-1]), "others": others}


def busy_seconds():
    """CPU seconds of all processes of this machine; 0 without /proc."""
    try:
        fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def take_turns(contenders, rounds):
    """Runs {name: function(round)} in turns, A B C A B C ...; returns {name: list of results}."""
    results = {name: [] for name in contenders}
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}")
        for name, function in contenders.items():
            results[name].append(function(number))
    return results


def median(results, key):
    return statistics.median(result[key] for result in results)


def span(results, key, digits):
    """Median and, in brackets, the smallest and the largest value."""
    values = [result[key] for result in results]
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f} to {max(values):.{digits}f})")


def print_table(head, rows):
    cells = [head] + rows
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def was_quiet(results):
    """Whether the machine was idle otherwise; prints a warning if not."""
    others = max(result["others"] for runs in results.values() for result in runs)
    if others > QUIET:
        print(f"\nThe machine was not idle: other processes used up to {others:.2f} cores. Repeat "
              "this on an idle machine.")
    return others <= QUIET
