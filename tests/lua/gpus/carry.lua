-- What tests/gpu/run --pack carries to a GPU machine suffices there: in tests/gpu/bare, which hides
-- the packages that ./nnlua installs, and with this build hidden too, a copy of the sources at
-- another path configures, compiles, links and runs with .deps/carry.tar.xz alone. GPU_CARRY=all
-- builds everything there and rehearses all parts (ten minutes on two cores).
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local root = host.root
local binaries = os.getenv "NNLUA_BUILD_DIR" or root .. "/build"
local copy                              -- of the sources, with the archive; nil: not made yet

-- The paths that programs know from their build are hidden too.
local hidden = ("export BARE_FOLDERS=%s/.deps/starpu:%s/lua:%s; "):format(root, root, binaries)
local function shell(text, ...) return t.shell("set -e; " .. hidden .. text:format(...)) end

local function succeed(text, ...)
  local status, output = shell(text, ...)
  t.check(status == 0, output)
  return output
end

-- Makes the copy, or skips the test.
local function need_copy()
  if shell "dpkg --version && python3 -c 'import sys; assert sys.version_info >= (3, 9)'" ~= 0 then
    t.skip "no dpkg, or no Python 3.9"
  end
  if shell("test -f %s/.deps/starpu/made_for", root) ~= 0 then t.skip "no StarPU in .deps" end
  if shell("test -x %s/nnlua_tests -a -d %s/emulated-gpus", binaries, binaries) ~= 0 then
    t.skip("no C++ tests with CUDA in " .. binaries)
  end
  local status, output = shell("%s/tests/gpu/bare true", root)
  if status == 77 then t.skip "no mount namespaces and overlays, which need root" end
  t.check(status == 0, output)
  if copy then return end
  local folder = t.folder() .. "/copy"
  succeed([[mkdir -p %s/.deps
    tar -C %s --exclude=./.deps --exclude=./.git --exclude='./build*' -cf - . | tar -C %s -xf -
    cp -a %s/.deps/starpu %s/.deps/]], folder, root, folder, root, folder)
  status, output = shell("cd %s; python3 -B tests/gpu/run --pack --preset 0 --binaries %s",
                         folder, binaries)
  if output:find "packages are not installed" then t.skip(output) end
  t.check(status == 0, output)
  succeed("rm -r %s/.deps/starpu %s/.deps/carry", folder, folder)
  copy = folder
end

-- Runs a command in the copy, on the bare machine.
local function bare(text, ...) return shell("cd %s; tests/gpu/bare " .. text, copy, ...) end

t.case("the carried folder is enough to compile, link and run what uses its packages", function()
  need_copy()
  local status, output = bare "python3 -B tests/gpu/probe.py probed program"
  t.check(status == 0, output)
end)

t.case("headers that depend on the architecture, and those of packages, are hidden", function()
  need_copy()
  local status, output = bare "python3 -B tests/gpu/probe.py hidden program --only-include"
  t.check(status ~= 0 and output:find "hwloc/autogen/config.h: No such file", output)
  status, output = bare [[bash -c 'echo "#include <catch2/catch.hpp>" | g++ -E -x c++ -']]
  t.check(status ~= 0 and output:find "catch2/catch.hpp: No such file", output)
end)

t.case("CMake configures the project there, and nvcc finds cuBLASLt's headers of pip", function()
  need_copy()
  succeed([[cd %s; mkdir -p pip/nvidia/cu13/include
    nvcc=$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
    cp "${nvcc%%/bin/nvcc}"/include/cublas*.h pip/nvidia/cu13/include/]], copy)
  local probe = "tests/gpu/bare python3 -B tests/gpu/probe.py cuda cuda"
  local build = "BARE_CUBLAS=hidden %s " .. probe
  succeed("cd %s; " .. build, copy, "PYTHONPATH=$PWD/pip")
  local status, output = shell([[cd %s; rm -r cuda/cublas-include
    rm cuda/CMakeFiles/kernels_cuda.dir/kernels/cuda/libraries.cu.o; ]] .. build, copy, "")
  t.check(status ~= 0 and output:find "cublasLt.h: No such file", output)
end)

t.case("the packed programs are used unless the sources or the GPU changed", function()
  need_copy()
  files.make_folder(copy .. "/bin")
  files.write(copy .. "/bin/nvidia-smi", [[#!/bin/sh
    case $1 in *compute_cap) echo 8.0 ;; *) echo "A GPU, 580.00, 81559 MiB" ;; esac]])
  local output = succeed([[cd %s; chmod +x bin/nvidia-smi
    PATH=$PWD/bin:$PATH tests/gpu/bare python3 -B tests/gpu/run --only build --copy copied]], copy)
  t.check(output:find("build: the packed binaries were used", 1, true), output)
  t.check(output:find "\nCUDA built in", output)
  t.check(output:find "CUDA runtime 1%d%.%d", output)
  local report = files.parse_json(files.read(copy .. "/copied/report.json"))
  t.same({report.rows[1].part, report.rows[1].result}, {"build", "ok"})
  t.check(files.read(copy .. "/copied/log.txt"):find("nnlua --version: status 0", 1, true))
  local function problem(capability)
    return succeed([[cd %s; PYTHONPATH=tests/gpu python3 -B -c \
      'import binaries; print(binaries.problem(None, "%s"))']], copy, capability)
  end
  t.check(problem("10.0"):find "^they are for sm_%d+.*, and the GPU has 10.0\n$", problem "10.0")
  succeed("echo '// changed' >>%s/kernels/targets.cc", copy)
  t.same(problem "8.0", "the sources have changed since\n")
end)

t.case("all parts pass there, with a full build (GPU_CARRY=all)", function()
  if os.getenv "GPU_CARRY" ~= "all" then t.skip "GPU_CARRY is not all" end
  need_copy()
  local venv = root .. "/.deps/torch-venv/bin/python"
  local python = shell("%s -c 'import torch'", venv) == 0 and "--python " .. venv or ""
  local status, output = bare("python3 -B tests/gpu/run --rehearse %s", python)
  print(output)
  t.same(status, 0)
end)

t.finish()
