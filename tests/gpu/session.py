"""One run of tests/gpu/run: its options and deadlines, the environment of the programs it starts, and its results."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import carry
import toolkit

ROOT = carry.ROOT
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
CATCH_ALL = re.compile(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)")
CATCH_SOME = re.compile(r"test cases: +(\d+) \|(?: +(\d+) passed \|)? +(\d+) failed")
# Lines that become notes of the report, the first kind before the second.
WARNINGS = re.compile(r"^nnlua: .*", re.M), re.compile(r"^.*\bwarning\b.*", re.M | re.I)
MOST_WARNINGS = 5  # in the notes of a part


class OutOfTime(Exception):
    pass


class Session:
    def __init__(self, options, started):
        self.options, self.rehearse = options, options.rehearse
        self.build = pathlib.Path(options.binaries).resolve() if options.binaries else ROOT / "build-gpu"
        self.environment = toolkit.environment(options.python) | os.environ | carry.environment()
        # In a rehearsal nnlua runs on an emulated GPU if the build has one (tests/emulated/runtime), else on the
        # CPU. These are its settings.
        self.emulated = {}
        self.cudnn = toolkit.cudnn(options.python)
        self.speeds, self.notes, self.attention, self.products = {}, [], [], []
        self.part, self.outputs = "", []  # the running part, and what its commands printed
        self.end = self.part_end = started + options.seconds
        self.log = report_folder(options) / "log.txt"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if options.only != "unfinished":
            self.log.unlink(missing_ok=True)

    def begin(self, part, seconds):
        """Starts the time of a part."""
        self.part, self.outputs = part, []
        self.part_end = time.monotonic() + seconds * (10 if self.rehearse else 1)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def note_warnings(self):
        """Adds the warnings that the programs of the part printed to the notes."""
        output = "\n".join(self.outputs)
        lines = dict.fromkeys(line.strip()[:300] for kind in WARNINGS for line in kind.findall(output))
        for line in list(lines)[:MOST_WARNINGS]:
            self.note(f"{self.part}: {line}")
        if len(lines) > MOST_WARNINGS:
            self.note(f"{self.part}: {len(lines) - MOST_WARNINGS} more warnings are in {self.log.name}")

    def find_emulated_gpu(self):
        libraries = self.build / "emulated-gpus"
        if self.rehearse and libraries.is_dir():
            others = self.environment.get("LD_LIBRARY_PATH")
            self.emulated = {"LD_LIBRARY_PATH": f"{libraries}:{others}" if others else str(libraries),
                             "EMULATED_CUDA": "gpus=1 memory=4096", "NNLUA_CUDNN": "none",
                             "STARPU_PERF_MODEL_DIR": str(libraries / "models")}
        elif self.rehearse:
            self.environment["NNLUA_REHEARSE"] = "1"

    def where(self):
        """The words that make a script run on the CPU in a rehearsal without an emulated GPU."""
        return ["where=cpu"] if self.rehearse and not self.emulated else []

    def run(self, command, environment=None, seconds=None, **more):
        """(exit status, output). Raises OutOfTime when the command exceeds these seconds, or the part or the whole
        run its limit.

        environment: instead of that of the session; more: variables in addition."""
        environment = self.environment if environment is None else environment
        if command[0] == self.build / "nnlua":
            environment = environment | self.emulated
        limit = max(0.1, min(self.end, self.part_end) - time.monotonic())
        # A file instead of a pipe, since a process that outlives the command would keep the pipe open.
        with tempfile.TemporaryFile() as file:
            process = subprocess.Popen([str(word) for word in command], cwd=ROOT, start_new_session=True, stdout=file,
                                       stderr=subprocess.STDOUT, env=environment | more)
            try:
                end = f"status {process.wait(min(seconds or limit, limit))}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the process leads its own session
                end = "out of time"
                process.wait()
            file.seek(0)
            output = file.read().decode(errors="replace")
        self.keep(command, end, output)
        if end == "out of time":
            raise OutOfTime(output[-1500:])
        return process.returncode, output

    def keep(self, command, end, output):
        """Keeps the output of a command for the notes, and in the log."""
        self.outputs.append(output)
        with self.log.open("a") as file:
            file.write(f"== {self.part}: {' '.join(map(str, command))}: {end}\n{output}\n")

    def must(self, command, **environment):
        status, output = self.run(command, **environment)
        if status != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} exited with status {status}:\n{output[-5000:]}")
        return output

    def json_of(self, command, **environment):
        lines = [line for line in self.must(command, **environment).splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{' '.join(map(str, command))} printed no JSON line")
        return json.loads(lines[-1])

    def tests(self, command, **environment):
        """Runs tests and returns {passed, failed, skipped}."""
        status, output = self.run(command, **environment)
        if found := COUNTS.findall(output):
            passed, failed, skipped = map(int, found[-1])
        elif found := CATCH_ALL.search(output):
            passed, failed, skipped = int(found[1]), 0, 0
        elif found := CATCH_SOME.search(output):
            passed, failed, skipped = int(found[2] or 0), int(found[3]), 0
        else:
            passed, failed, skipped = 0, 1, 0  # it did not finish
        failed = failed or int(status != 0)
        if failed or not passed:
            print(output[-6000:], flush=True)
        return {"passed": passed, "failed": failed or int(not passed), "skipped": skipped}


def report_folder(options):
    return pathlib.Path(options.json).parent


def run_part(s, name, seconds, function):
    """Runs a part and returns its row of the table."""
    row = {"part": name, "result": "ok", "passed": "", "failed": "", "skipped": "", "limit": seconds}
    start = time.monotonic()
    if start >= s.end - 0.1:
        return row | {"result": "not started: time is up", "seconds": 0}
    s.begin(name, seconds)
    try:
        row |= function(s)
        if row["failed"]:
            row["result"] = "failed"
    except OutOfTime as error:
        print(f"== {name}: out of time; its last output:\n{error}", flush=True)
        row["result"] = "out of time"
    except Exception as error:  # whatever it is, the other parts run
        print(f"== {name}: {type(error).__name__}: {error}", flush=True)
        row["result"] = "failed"
    s.note_warnings()
    row["seconds"] = round(time.monotonic() - start, 1)
    print(f"{name}: {row['result']}, {row['seconds']} s", flush=True)
    return row


def asked_of_gpu(what):
    """What nvidia-smi reports about the first GPU; None if there is no GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=" + what, "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else None


def python_with_torch():
    for python in (sys.executable, ROOT / ".deps/torch-venv/bin/python", "python3"):
        try:
            if subprocess.run([str(python), "-c", "import torch"], capture_output=True).returncode == 0:
                return str(python)
        except OSError:
            continue
    return sys.executable  # its import error names what is missing
