-- Emulated GPUs for tests: the CUDA run time of tests/emulated/runtime.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local M = {}
local libraries = t.program():match "^(.*)/" .. "/emulated-gpus"

--- The environment of a process without GPUs that computes the bits of emulated ones. These have no
--- choice of their own for each shape of a product.
M.none = "env NNLUA_CUDNN=none NNLUA_PRODUCTS=openblas"

--- devices(description, folder) -> the environment, for a command line, of a process with such
--- GPUs, which writes its counts of calls to the folder.
function M.devices(description, folder)
  return ("%s LD_LIBRARY_PATH=%s EMULATED_CUDA='%s report=%s/calls' "
    .. "STARPU_PERF_MODEL_DIR=%s/models"):format(M.none, libraries, description, folder, folder)
end

--- train(description, words, folder) -> the status, output and errors of tests/lua/support/gpus.lua
--- with these arguments, on such GPUs, or on the CPU if description is nil.
function M.train(description, words, folder)
  local command = "ulimit -c 0; %s timeout -k 1 100 $NNLUA %s/tests/lua/support/gpus.lua %s "
    .. "2>%s/errors"
  local environment = description and M.devices(description, folder) or M.none
  local status, output = t.shell(command:format(environment, host.root, words or "", folder))
  return status, output, files.read(folder .. "/errors")
end

--- counts(folder) -> the counts of calls, kernels and bytes that a process wrote there at its end.
function M.counts(folder)
  local out = {}
  for name, count in files.read(folder .. "/calls"):gmatch "(%S+) (%d+)\n" do
    out[name] = tonumber(count)
  end
  return out
end

--- missing() -> why this build has no such run time, or nil.
function M.missing()
  for version = 12, 13 do
    if files.exists(("%s/libcudart.so.%d"):format(libraries, version)) then return nil end
  end
  return "no emulated CUDA run time: this build has no CUDA, or no tests"
end

--- need(): skips the case where this build has no such run time.
function M.need()
  local missing = M.missing()
  if missing then t.skip(missing) end
end

--- case(name, f): a test case that needs such GPUs.
function M.case(name, f)
  t.case(name, function()
    M.need()
    f()
  end)
end

return M
