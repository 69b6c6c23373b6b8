"""Dependencies for building nnlua on a machine without a package registry: the folder .deps/carry.

Run `tests/gpu/run --pack` on a machine where ./nnlua has been built with nvcc. It copies StarPU and the
Debian packages that ./nnlua installs into the folder, with prebuilt programs (binaries.py), and compresses it to
.deps/carry.tar.xz. tests/gpu/run unpacks this file if the folder is missing or has other contents, and uses the
folder. The C library is not included: that of the target machine must be at least as new as that of the packing
machine.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARRY = ROOT / ".deps/carry"
ARCHIVE = ROOT / ".deps/carry.tar.xz"
STARPU = ROOT / ".deps/starpu"
UNPACKED = CARRY / "archive.sha256"  # of the archive that has the contents of the folder
PACKAGES = ("libhwloc-dev libhwloc15 libluajit-5.1-dev libluajit-5.1-2 libluajit-5.1-common lua-cjson "
            "libdeflate-dev libdeflate0 libpng-dev libpng16-16 libjpeg62-turbo-dev libjpeg62-turbo zlib1g-dev "
            "libopenblas0-pthread catch2 pkgconf-bin pkgconf libpkgconf3").split()
KEPT = re.compile(r"/usr/(include/|lib/|bin/pkgconf$|share/luajit)")
LEFT = re.compile(r"liblapack|libblas|/lua/5\.[234]/|/lib(luajit|deflate|hwloc|png|jpeg|z)[^/]*\.a$")  # unused
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


def check():
    """Exits if something that must be packed is missing."""
    if not (STARPU / "made_for").exists():
        sys.exit("tests/gpu/run: .deps/starpu is missing; run ./nnlua to build it (needs CUDA's nvcc)")
    absent = [name for name in PACKAGES if subprocess.run(["dpkg", "-s", name], capture_output=True).returncode]
    if absent:
        sys.exit(f"tests/gpu/run: cannot pack, because packages are not installed: {', '.join(absent)}; "
                 f"run: apt-get install {' '.join(absent)}")


def pack():
    """Creates .deps/carry anew, with StarPU and the packages."""
    shutil.rmtree(CARRY, ignore_errors=True)
    prefix = CARRY / "usr"
    prefix.mkdir(parents=True)
    for name in PACKAGES:
        copy_package(name, prefix)
    # The parts run on one machine, so MPI stays behind.
    shutil.copytree(STARPU, CARRY / "starpu", symlinks=True, ignore=shutil.ignore_patterns("*starpumpi*"))
    libraries = prefix / "lib/carried"
    libraries.mkdir(parents=True)
    for file in list(prefix.rglob("*.so*")) + list((CARRY / "starpu/lib").glob("*.so*")):
        for name, path in needed_libraries(file):
            if not SYSTEM.match(name) and "cuda" not in path and not (CARRY / "starpu/lib" / name).exists():
                shutil.copy(path, libraries / name)
    for file in prefix.rglob("libopenblas*.so*"):  # the program loads it by this name
        shutil.move(file, libraries / "libopenblas.so.0")
    for file in prefix.rglob("*.pc"):  # paths relative to the .pc file, so that the folder can move
        up = "/".join([".."] * (len(file.parent.relative_to(prefix).parts)))
        text = file.read_text().replace("/usr", "${pcfiledir}/" + up)
        file.write_text(text)


def compress(preset):
    """Writes the archive and prints its size."""
    part = ARCHIVE.with_suffix(".part")
    with tarfile.open(part, "w:xz", preset=preset) as archive:
        archive.add(CARRY, "carry")
    part.replace(ARCHIVE)
    UNPACKED.write_text(archive_checksum())
    size = sum(f.stat().st_size for f in CARRY.rglob("*") if f.is_file() and not f.is_symlink())
    print(f".deps/carry: {size / 1e6:.1f} MB; .deps/carry.tar.xz: {ARCHIVE.stat().st_size / 1e6:.1f} MB")


def archive_checksum():
    return hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()


def unpack():
    """Unpacks the archive, if there is one, unless the folder has its contents. Needs Python's lzma but no xz."""
    if not ARCHIVE.exists() or UNPACKED.exists() and UNPACKED.read_text() == archive_checksum():
        return
    part = ARCHIVE.parent / "carry.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(part, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    except (tarfile.TarError, EOFError, OSError) as error:
        if CARRY.exists() and not UNPACKED.exists():
            return  # somebody unpacked it by hand
        sys.exit(f"tests/gpu/run: cannot unpack {ARCHIVE}: {error}; copy it again, or unpack it by hand: "
                 f"tar -C {ARCHIVE.parent} -xJf {ARCHIVE}")
    shutil.rmtree(CARRY, ignore_errors=True)
    (part / "carry").rename(CARRY)
    part.rmdir()
    UNPACKED.write_text(archive_checksum())


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
        # Debian has the headers that depend on the architecture in a folder of their own.
        "CPATH": ":".join(map(str, [prefix / "include", *sorted((prefix / "include").glob("*-linux-gnu*"))])),
    }
    program = prefix / "bin/pkgconf"
    if program.exists():
        result["PKG_CONFIG"] = str(program)
    if lua:
        result["NNLUA_CJSON"] = str(lua)
    return result
