-- Ranks that have GPUs, with the CUDA run time of tests/emulated/runtime: the bits of one process on
-- the CPU. Skipped where MPI or the emulated devices are missing. GPUS_SEED: seeds random delays.
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local seed = tonumber(os.getenv "GPUS_SEED") or os.time() % 100000
local model = root .. "/tests/lua/support/ranks_model.lua"
local binaries, folder = t.program():match "^(.*)/", t.folder()
local libraries = binaries .. "/emulated-gpus"

-- Trains -> the losses and checksums. gpus: of all ranks, or nil.
local function train(ranks, gpus, words, delays)
  local environment = gpus and ("LD_LIBRARY_PATH=%s EMULATED_CUDA='gpus=%d delays=%d report=%s/calls' "
    .. "NNLUA_CUDNN=none STARPU_PERF_MODEL_DIR=%s/models"):format(libraries, gpus, delays or 0, folder,
                                                              folder) or ""
  local status, output = t.shell(("%s timeout 100 '%s' %s %s %s 2>%s/errors"):format(
    environment, mpi.program, ranks > 1 and "--ranks " .. ranks or "", model, words, folder))
  t.check(status == 0, ("%d ranks, %s GPUs, %s: status %d\n%s"):format(
    ranks, gpus or "no", words, status, files.read(folder .. "/errors")))
  return output
end

local alone = {}
local function same_bits(ranks, gpus, words, delays)
  alone[words] = alone[words] or train(1, nil, words)
  t.same(train(ranks, gpus, words, delays), alone[words])
  local counted = {}
  for rank = 0, ranks - 1 do
    local report = files.read(("%s/calls.%d"):format(folder, rank))
    for gpu, kernels in report:gmatch "kernels_(%d+) (%d+)" do
      counted[gpu + 1] = (counted[gpu + 1] or 0) + kernels
    end
  end
  for gpu = 1, gpus do t.check(counted[gpu] > 0, ("GPU %d ran no kernel"):format(gpu - 1)) end
end

local function case(name, f)
  t.case(name, function()
    mpi.need()
    if not (files.exists(libraries .. "/libcudart.so.13")
            or files.exists(libraries .. "/libcudart.so.12")) then
      t.skip "no emulated CUDA run time: this build has no CUDA, or no tests"
    end
    f()
  end)
end

case("2 ranks with a GPU or two each give the bits of one process", function()
  for _, dtype in ipairs {"f32", "bf16"} do
    local words = ("shards=4 accum=8 batch=8 dtype=%s shard="):format(dtype)
    for gpus = 2, 4, 2 do
      same_bits(2, gpus, words .. "optimizer")
      same_bits(2, gpus, words .. "weights", seed % 1000 + 1)
    end
  end
end)

case("ranks with unequal numbers of GPUs give these bits too", function()
  same_bits(2, 3, "shards=4 accum=4 layers=3 embd=96", seed % 1000 + 1)
  same_bits(3, 4, "shards=3 accum=6 batch=12 layers=1 embd=128 shard=weights")
end)

t.finish()
