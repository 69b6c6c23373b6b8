"""Programs and libraries of NVIDIA for tests/gpu/run: those of the CUDA toolkit, else those of pip's nvidia
packages, which PyTorch installs (nvidia/cu13/lib, nvidia/cublas/lib, nvidia/cudnn/lib and others)."""
import ctypes
import functools
import os
import pathlib
import shutil
import subprocess


@functools.cache
def pip_folder(python):
    """The folder of pip's nvidia packages in this Python; None if it has none."""
    program = ("import importlib.util as u; s = u.find_spec('nvidia'); "
               "print(*(s.submodule_search_locations if s else []), sep='\\n')")
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True)
    folders = (pathlib.Path(line).resolve() for line in done.stdout.splitlines())
    return next(filter(pathlib.Path.is_dir, folders), None)


def homes():
    """The folders of toolkits, the preferred one first."""
    nvcc = shutil.which("nvcc")
    found = [os.environ.get("CUDA_HOME"), nvcc and pathlib.Path(nvcc).resolve().parents[1], "/usr/local/cuda"]
    return [pathlib.Path(home) for home in found if home]


def find(python, *patterns):
    """The first file that matches a pattern, such as bin/nvcc, in a toolkit or in a pip package; None if none."""
    pip = pip_folder(python)
    for folder in [*homes(), *(sorted(pip.iterdir()) if pip else [])]:
        for pattern in patterns:
            if files := sorted(folder.glob(pattern)):
                return files[0]
    return None


def cudnn(python):
    """The folder of the cuDNN that PyTorch installed; None if this Python has none."""
    pip = pip_folder(python)
    folder = pip and pip / "cudnn"
    has_all = folder and (folder / "include/cudnn_graph.h").exists() and (folder / "lib/libcudnn.so.9").exists()
    return folder if has_all else None


def ninja(folder, *targets):
    """The command that builds targets, with as many jobs as JOBS says, as in .setup/setup.sh."""
    jobs = ["-j", os.environ["JOBS"]] if "JOBS" in os.environ else []
    return ["ninja", "-C", folder, *jobs, *targets]


def compiler(python):
    """The arguments of CMake that name nvcc; none where CMake finds it itself."""
    nvcc = find(python, "bin/nvcc")
    return [f"-DCMAKE_CUDA_COMPILER={nvcc}"] if nvcc else []


def runtime(python):
    """The CUDA runtime library, libcudart.so.N; None if there is none."""
    return find(python, "lib64/libcudart.so.1?", "lib/libcudart.so.1?")


def cuda_versions(python):
    """Versions of the CUDA runtime and of the CUDA that the driver supports (0.0 without a driver); None if there is
    no runtime."""
    try:
        library, found = ctypes.CDLL(str(runtime(python))), []
        for function in library.cudaRuntimeGetVersion, library.cudaDriverGetVersion:
            number = ctypes.c_int()
            function(ctypes.byref(number))
            found.append(f"{number.value // 1000}.{number.value % 1000 // 10}")
        return found
    except (OSError, AttributeError):
        return None


def headers(python, build, environment):
    """The variable that adds pip's headers of cuBLASLt to the compiler's, by links in build; {} where the toolkit of
    nvcc has these headers. The other headers in pip's folder may be of another version than nvcc."""
    nvcc = find(python, "bin/nvcc")
    found = find(python, "include/cublasLt.h")
    own = nvcc and nvcc.resolve().parents[1] / "include/cublasLt.h"
    if not found or not own or own.exists():
        return {}
    folder = build / "cublas-include"
    folder.mkdir(parents=True, exist_ok=True)
    for header in found.parent.glob("cublas*.h"):
        link = folder / header.name
        link.unlink(missing_ok=True)
        link.symlink_to(header)
    return {"CPATH": ":".join(filter(None, [environment.get("CPATH"), str(folder)]))}


def environment(python):
    """Variables that name the libraries that nnlua opens: cuDNN of PyTorch, so that both sides are measured with
    the same one, and cuBLASLt of pip if the toolkit has none."""
    out = {}
    if folder := cudnn(python):
        out["NNLUA_CUDNN"] = str(folder / "lib/libcudnn.so.9")
    blas = find(python, "lib64/libcublasLt.so.1?", "lib/libcublasLt.so.1?")
    if blas and pip_folder(python) in blas.parents:
        out["NNLUA_CUBLASLT"] = str(blas)
    return out


def sanitizer(python):
    """compute-sanitizer, by its name if only PATH may know it."""
    return find(python, "bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer") or "compute-sanitizer"
