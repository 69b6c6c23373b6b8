"""Prebuilt nnlua and nnlua_tests in .deps/carry, which save the build on a GPU machine.

tests/gpu/run --pack compiles them for one generation of GPUs, in build-pack. They are used only if the sources are
those that they were built from, the GPU is of that generation, and they start.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import carry
import session
import toolkit

ROOT = carry.ROOT
FOLDER = carry.CARRY / "binaries"
PROGRAMS = ("nnlua", "nnlua_tests")
SOURCES = ("CMakeLists.txt", "bindings", "engine", "kernels", "tests/cpp", "tests/emulated")


def checksum():
    """Of all that is compiled into the programs."""
    total = hashlib.sha256()
    for name in SOURCES:
        files = sorted((ROOT / name).rglob("*")) if (ROOT / name).is_dir() else [ROOT / name]
        for file in filter(pathlib.Path.is_file, files):
            total.update(f"{file.relative_to(ROOT)} {file.stat().st_size}\n".encode() + file.read_bytes())
    return total.hexdigest()


def compile_for(architecture):
    """Builds the programs in build-pack and returns this folder."""
    folder = ROOT / "build-pack"
    for command in (["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DNN_CUDA=ON", "-DNN_TESTS=ON",
                     f"-DNN_STARPU={ROOT / '.deps/starpu'}", f"-DCMAKE_CUDA_ARCHITECTURES={architecture}-real",
                     *toolkit.compiler(sys.executable)], toolkit.ninja(folder, *PROGRAMS)):
        print(f"tests/gpu/run: {' '.join(map(str, command))}", flush=True)
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            sys.exit("tests/gpu/run: cannot pack, because the build failed; --binaries none packs without programs")
    return folder


def pack(build):
    """Copies the programs of a build folder, without symbols for debuggers, into .deps/carry."""
    FOLDER.mkdir(parents=True)
    for name in PROGRAMS:
        if not (build / name).exists():
            sys.exit(f"tests/gpu/run: cannot pack, because {build / name} is missing")
        subprocess.run(["strip", "-o", FOLDER / name, build / name], check=True)
    cache = (build / "CMakeCache.txt").read_text()
    architectures = re.search(r"^CMAKE_CUDA_ARCHITECTURES:\w+=(.*)", cache, re.M)
    if not architectures:
        sys.exit(f"tests/gpu/run: cannot pack, because {build} is a build without CUDA")
    if re.search(r"^CUDNN_INCLUDE_DIR:\w+=.*-NOTFOUND$", cache, re.M):
        print(f"tests/gpu/run: {build} has no cuDNN, so the packed nnlua will not use it", file=sys.stderr)
    about = {"sources": checksum(), "architectures": re.findall(r"\d+", architectures[1])}
    (FOLDER / "about.json").write_text(json.dumps(about) + "\n")


def environment(s):
    """The session's variables, and those that the programs need outside of the folder they were built in."""
    libraries = [s.environment.get("LD_LIBRARY_PATH")]
    if runtime := toolkit.runtime(s.options.python):
        libraries.append(str(runtime.parent))
    return s.environment | {"NNLUA_PATH": str(ROOT), "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}


def problem(s, capability):
    """Why the packed programs cannot be used for a GPU of this compute capability; None if they can."""
    if not all(os.access(FOLDER / name, os.X_OK) for name in PROGRAMS):
        return "there are none"
    about = json.loads((FOLDER / "about.json").read_text())
    if capability.replace(".", "") not in about["architectures"]:
        return f"they are for sm_{', sm_'.join(about['architectures'])}, and the GPU has {capability}"
    if about["sources"] != checksum():
        return "the sources have changed since"
    for command in ([FOLDER / "nnlua", "-e", "assert((nn.ones(2) + 1):sum():item() == 4)"],
                    [FOLDER / "nnlua_tests", "--libidentify"]):
        try:
            status, output = s.run(command, environment(s), seconds=60)
        except session.OutOfTime:
            return f"{command[0].name} does not start within a minute"
        if status:
            lines = output.strip().splitlines() or [f"status {status}"]
            return f"{command[0].name} does not start: {lines[0]}"
    return None


def use(s):
    """Makes the session use the packed programs."""
    s.environment, s.build = environment(s), FOLDER
