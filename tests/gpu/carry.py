"""Dependencies for building nnlua on a machine without a package registry: the folder .deps/carry.

Run `tests/gpu/run --pack` on a machine where ./nnlua has been built with nvcc. It copies StarPU and the
Debian packages that ./nnlua installs into the folder. tests/gpu/run uses the folder if it exists. The C
library is not included: that of the target machine must be at least as new as that of the packing machine.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARRY = ROOT / ".deps/carry"
PACKAGES = ("libhwloc-dev libhwloc15 libluajit-5.1-dev libluajit-5.1-2 libluajit-5.1-common lua-cjson "
            "libdeflate-dev libdeflate0 libopenblas0-pthread catch2 pkgconf-bin pkgconf libpkgconf3").split()
KEPT = re.compile(r"/usr/(include/|lib/|bin/pkgconf$|share/luajit)")
LEFT = re.compile(r"liblapack|libblas|/lua/5\.[234]/|/lib(luajit|deflate|hwloc)[^/]*\.a$")  # unused
# Present on every system that has a compiler.
SYSTEM = re.compile(r"^(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libgcc_s|libstdc\+\+)\.so")


def needed_libraries(file):
    """(name, path) of each shared library that a library or program loads."""
    done = subprocess.run(["ldd", str(file)], capture_output=True, text=True)
    if missing := re.findall(r"^\s*(?!libcuda)(\S+) => not found", done.stdout, re.M):
        sys.exit(f"tests/gpu/run: cannot pack, because {file} needs {', '.join(missing)}, which this machine lacks")
    return re.findall(r"(\S+) => (/\S+)", done.stdout)


def copy_package(name, prefix):
    done = subprocess.run(["dpkg", "-L", name], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        source = pathlib.Path(line)
        if not KEPT.match(line) or LEFT.search(line) or not source.is_file():
            continue
        target = prefix / source.relative_to("/usr")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def pack():
    """Rebuilds .deps/carry and prints its size, plain and compressed."""
    starpu = ROOT / ".deps/starpu"
    if not (starpu / "made_for").exists():
        sys.exit("tests/gpu/run: .deps/starpu is missing; run ./nnlua to build it (needs CUDA's nvcc)")
    absent = [name for name in PACKAGES if subprocess.run(["dpkg", "-s", name], capture_output=True).returncode]
    if absent:
        sys.exit(f"tests/gpu/run: cannot pack, because packages are not installed: {', '.join(absent)}; "
                 f"run: apt-get install {' '.join(absent)}")
    shutil.rmtree(CARRY, ignore_errors=True)
    prefix = CARRY / "usr"
    prefix.mkdir(parents=True)
    for name in PACKAGES:
        copy_package(name, prefix)
    shutil.copytree(starpu, CARRY / "starpu", symlinks=True)
    libraries = prefix / "lib/carried"
    libraries.mkdir(parents=True)
    for file in list(prefix.rglob("*.so*")) + list((CARRY / "starpu/lib").glob("*.so*")):
        for name, path in needed_libraries(file):
            if not SYSTEM.match(name) and "cuda" not in path:
                shutil.copy(path, libraries / name)
    for file in prefix.rglob("libopenblas*.so*"):  # the program loads it by this name
        shutil.move(file, libraries / "libopenblas.so.0")
    for file in prefix.rglob("*.pc"):  # paths relative to the .pc file, so that the folder can move
        up = "/".join([".."] * (len(file.parent.relative_to(prefix).parts)))
        text = file.read_text().replace("/usr", "${pcfiledir}/" + up)
        file.write_text(text)
    archive = ROOT / ".deps/carry.tar.xz"
    subprocess.run(["tar", "-C", ROOT / ".deps", "-cJf", archive, "carry"], check=True)
    size = sum(f.stat().st_size for f in CARRY.rglob("*") if f.is_file() and not f.is_symlink())
    print(f".deps/carry: {size / 1e6:.1f} MB; .deps/carry.tar.xz: {archive.stat().st_size / 1e6:.1f} MB")


def environment():
    """Environment variables for building and running against .deps/carry; {} if it does not exist."""
    if not CARRY.exists():
        return {}
    prefix = CARRY / "usr"
    paths = [str(p.parent) for p in prefix.rglob("*.pc")] + [str(CARRY / "starpu/lib/pkgconfig")]
    lua = next(prefix.rglob("lua/5.1/cjson.so"), None)
    folders = sorted({str(f.parent) for f in prefix.rglob("lib*.so*")})
    result = {
        "PKG_CONFIG_LIBDIR": ":".join(sorted(set(paths))), "CMAKE_PREFIX_PATH": str(prefix),
        "LD_LIBRARY_PATH": ":".join([*folders, str(CARRY / "starpu/lib"),
                                     os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":"),
        "CPATH": str(prefix / "include"),
    }
    program = prefix / "bin/pkgconf"
    if program.exists():
        result["PKG_CONFIG"] = str(program)
    if lua:
        result["LUA_CPATH"] = f"{lua.parent}/?.so;;"
    return result
