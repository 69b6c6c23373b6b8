"""The parts of tests/gpu/run, each a function of the session, and their time limits."""
import os

import binaries
import carry
import toolkit
from session import ROOT, asked_of_gpu

# For the slow sanitizers: only kernels whose threads share memory.
SHARED_TESTS = "*attention*,*softmax*,*layernorm*,*LayerNorm*,*column*,*embedding*,*cross*,*reduc*"
SEQUENCES = {"gpt2": 16, "gpt2-xl": 8}  # per step
RESIDENT = 50e9  # bytes of gpt2-xl on the GPU without a plan, if they were not measured
RAM_GB = {False: 40, True: 1}  # the memory budget of speed and budget, if RAM suffices; True: in a rehearsal
SMALL = {"layers": 2, "heads": 2, "embd": 64, "vocab": 96}  # for rehearsals


def capability():
    """The compute capability of the GPU, such as 9.0."""
    found = asked_of_gpu("compute_cap")
    if not found:
        raise RuntimeError("nvidia-smi does not report the compute capability (compute_cap)")
    return found


def configure(s):
    """Runs CMake for the session's build folder."""
    command = ["cmake", "-S", ROOT, "-B", s.build, "-G", "Ninja", "-DNN_CUDA=ON", "-DNN_TESTS=ON",
               *toolkit.compiler(s.options.python)]
    if s.cudnn:
        command.append(f"-DCUDNN_INCLUDE_DIR={s.cudnn / 'include'}")
    # One architecture compiles faster than all.
    architecture = ("9.0" if s.rehearse else capability()).replace(".", "")
    command.append(f"-DCMAKE_CUDA_ARCHITECTURES={architecture}")
    if carry.CARRY.exists():
        command.append(f"-DNN_STARPU={carry.CARRY / 'starpu'}")
    s.build.mkdir(parents=True, exist_ok=True)
    s.must(command, **toolkit.headers(s.options.python, s.build, s.environment))


def build(s):
    problem = "a rehearsal builds anew" if s.rehearse else binaries.problem(s, capability())
    if problem:
        if binaries.FOLDER.exists():
            s.note(f"build: the packed binaries were not used: {problem}")
        configure(s)
        s.must(toolkit.ninja(s.build, "nnlua", "nnlua_tests"),
               **toolkit.headers(s.options.python, s.build, s.environment))
    else:
        binaries.use(s)
        s.note("build: the packed binaries were used")
    s.find_emulated_gpu()
    note_versions(s)
    return {}


def note_versions(s):
    if found := toolkit.cuda_versions(s.options.python):
        s.note("CUDA runtime {}; the driver supports {}".format(*found))
    for line in s.must([s.build / "nnlua", "--version"]).splitlines():
        s.note(line)


def kernel_tests():
    """The C++ tests of kernels, as Catch2 selects them by file; those of the engine expect CPU workers only."""
    files = sorted((ROOT / "tests/cpp").glob("*_test.cc"))
    return ",".join(f"[#{file.stem}]" for file in files if "nn::test;" in file.read_text())


def kernels(s, *prefix, pattern=None, **environment):
    devices = "emulated" if s.rehearse else "gpu"
    tests = [pattern] if pattern else ["--filenames-as-tags", kernel_tests()]
    return s.tests([*prefix, s.build / "nnlua_tests", *tests], NNLUA_TEST_DEVICES=devices, **environment)


def sanitized(s, tool):
    if s.rehearse:
        s.note(f"{tool}: rehearsed without compute-sanitizer")
        return kernels(s, pattern="*attention on tensor cores*")
    # cuBLASLt tries calls that may fail; their statuses are not errors of ours.
    return kernels(s, toolkit.sanitizer(s.options.python), "--tool", tool, "--report-api-errors", "no",
                   "--error-exitcode", "9", pattern=SHARED_TESTS, NNLUA_CUDNN="none")


def ops(s):
    seed = s.options.seed
    s.note(f"ops: random inputs with seed {seed} (--seed)")
    return s.tests([s.build / "nnlua", "tests/gpu/ops.lua"], NNLUA_POISON="1", NNLUA_TEST_SEED=str(seed))


def attention(s):
    result = s.tests([s.build / "nnlua", "tests/gpu/attention.lua"], NNLUA_POISON="1",
                     NNLUA_TEST_SEED=str(s.options.seed))
    words = [*s.where(), "shrink=32", "repeats=1"] if s.rehearse else []
    s.attention = s.json_of([s.build / "nnlua", "tests/gpu/attention_speed.lua", *words])["rows"]
    return result


def step(s):
    return s.tests([s.build / "nnlua", "tests/gpu/step.lua"])


def budget(s):
    sizes = SMALL | {"batch": 2, "tokens": 16} if s.rehearse else {}
    words = [f"{k}={v}" for k, v in sizes.items()] + s.where() + [f"ram_gb={RAM_GB[s.rehearse]}"]
    whole = s.json_of([s.build / "nnlua", "tests/gpu/budget.lua", *words])
    fifth = max(64 << 20, whole["gpu_bytes"] // 5)
    cut = s.json_of([s.build / "nnlua", "tests/gpu/budget.lua", f"memory={fifth}", *words])
    s.note(f"budget: {whole['gpu_bytes'] / 1e6:.0f} MB used without a limit, "
           f"{whole['moved_per_step'] / 1e6:.0f} MB moved per step; with a limit of {fifth / 1e6:.0f} MB: "
           f"{cut['moved_per_step'] / 1e6:.0f} MB moved per step")
    if cut["losses"] != whole["losses"]:
        raise RuntimeError(f"the losses differ: {whole['losses']}, but with a fifth of the memory {cut['losses']}")
    if not s.where() and cut["gpu_bytes"] > fifth:
        raise RuntimeError(f"{cut['gpu_bytes']} bytes were used; the limit was {fifth}")
    return {"passed": 1, "failed": 0, "skipped": 0}


def variant(s, model, side, tokens):
    """The words of speed.lua in which a side differs from the defaults, for steps of so many tokens."""
    words = {"nnlua with graphs": {"graphs": "true"}, "nnlua with 2 tiles": {"tile": tokens // 2},
             "nnlua with atomics": {"attention": "cudnn"}, "nnlua with bf16 gradients": {"gradients": "bf16"}}
    if side == "nnlua in half":
        if s.rehearse:
            return {} if s.where() else {"gpu_gb": 1}
        whole = s.speeds[model, "nnlua"]["peak_bytes"] if (model, "nnlua") in s.speeds else RESIDENT
        return {"gpu_gb": round(whole / 2e9)}
    return words.get(side, {})


def products(s):
    words = [*s.where(), "shrink=32", "repeats=2"] if s.rehearse else []
    s.products = s.json_of([s.build / "nnlua", "tests/gpu/products_speed.lua", *words])["rows"]
    return {}


def speed(s, model, side):
    sizes = {"model": model, "batch": SEQUENCES[model], "tokens": 1024, "steps": 10, "warmup": 4, "product": 8192}
    if s.rehearse:
        sizes = SMALL | {"model": "custom", "batch": 2, "tokens": 16, "steps": 2, "warmup": 1, "product": 64}
    if side.startswith("nnlua"):
        sizes |= variant(s, model, side, sizes["batch"] * sizes["tokens"])
        words = [f"{k}={v}" for k, v in sizes.items()] + s.where() + [f"ram_gb={RAM_GB[s.rehearse]}"]
        result = s.json_of([s.build / "nnlua", "tests/gpu/speed.lua", *words])
    else:
        words = [str(word) for k, v in sizes.items() for word in (f"--{k}", v)]
        words += ["--compile"] * (side == "compile") + ["--device", "cpu"] * s.rehearse
        # PyTorch gets none of the libraries and headers that nnlua needs.
        result = s.json_of([s.options.python, "tests/gpu/torch_speed.py", *words], environment=dict(os.environ))
        s.note(result["versions"])
    s.speeds[model, side] = result
    without = s.speeds.get((model, "nnlua"))
    if side == "nnlua with graphs" and without and result["loss"] != without["loss"]:
        raise RuntimeError(f"the loss is {result['loss']} with CUDA graphs and {without['loss']} without them")
    return {}


def speed_part(name, seconds):
    return name, seconds, lambda s: speed(s, *name.split(" ", 1))


# Two calls of at most CALL seconds run all parts even if each needs all its time: the first call runs FIRST, the
# second the others and the build again, which then has nothing to compile and needs at most BUILT seconds.
CALL, BUILT = 570, 40
FIRST = [("build", 150, build), ("kernels", 60, kernels), ("step", 20, step), speed_part("gpt2 nnlua", 20),
         speed_part("gpt2 compile", 90), speed_part("gpt2-xl nnlua", 30), speed_part("gpt2-xl compile", 150)]
PARTS = [*FIRST, speed_part("gpt2 eager", 30), speed_part("gpt2-xl eager", 50),
         speed_part("gpt2 nnlua with graphs", 20), speed_part("gpt2-xl nnlua with graphs", 30),
         speed_part("gpt2-xl nnlua with bf16 gradients", 30),
         speed_part("gpt2 nnlua with 2 tiles", 20), speed_part("gpt2 nnlua with atomics", 20),
         speed_part("gpt2-xl nnlua with atomics", 30), speed_part("gpt2-xl nnlua in half", 80),
         ("products", 20, products), ("attention", 30, attention), ("ops", 20, ops), ("budget", 30, budget),
         ("memcheck", 60, lambda s: sanitized(s, "memcheck")), ("racecheck", 60, lambda s: sanitized(s, "racecheck"))]


def select(only, earlier):
    """The parts that --only names, and build. Raises ValueError for a part that does not exist. earlier: the report
    of the earlier run, for "unfinished"."""
    if not only:
        return PARTS
    if only == "unfinished":
        done = {row["part"] for row in earlier["rows"] if row["result"] == "ok"} - {"build"}
        return [part for part in PARTS if part[0] not in done]
    wanted, names = [name.strip() for name in only.split(",")], [name for name, _, _ in PARTS]
    if unknown := sorted(set(wanted) - set(names)):
        raise ValueError(f"unknown part {', '.join(unknown)}; the parts are {', '.join(names)}")
    return [part for part in PARTS if part[0] in ("build", *wanted)]
