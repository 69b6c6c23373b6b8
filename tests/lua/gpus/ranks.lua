-- Ranks that have GPUs, with the CUDA run time of tests/emulated/runtime: the bits of one process
-- on the CPU. Skipped where MPI or the emulated devices are missing. GPUS=all: more steps.
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local emulated = require "emulated"
local mpi = require "mpi"

local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or os.time() % 100000
local model = root .. "/tests/lua/support/ranks_model.lua"
local folder = t.folder()

-- The environment of processes that share so many GPUs.
local function devices(gpus, delays)
  return emulated.devices(("gpus=%d delays=%d"):format(gpus, delays or 0), folder)
end

-- Trains -> the status, the output, and the errors. gpus: of all ranks, or nil.
local function run(ranks, gpus, words, delays)
  files.remove(folder .. "/calls")
  for rank = 0, ranks - 1 do files.remove(("%s/calls.%d"):format(folder, rank)) end
  local status, output = t.shell(("%s timeout 100 '%s' %s %s %s 2>%s/errors"):format(
    gpus and devices(gpus, delays) or emulated.none, mpi.program,
    ranks > 1 and "--ranks " .. ranks or "", model, words, folder))
  return status, output, files.read(folder .. "/errors")
end
local function train(ranks, gpus, words, delays)
  local status, output, errors = run(ranks, gpus, words, delays)
  t.check(status == 0, ("%d ranks, %s GPUs, %s: status %d\n%s"):format(ranks, gpus or "no", words,
                                                                     status, errors))
  return output, errors
end

-- How many kernels ran on each GPU.
local function kernels(ranks)
  local out = {}
  for rank = 0, ranks - 1 do
    local report = ranks > 1 and ("%s/calls.%d"):format(folder, rank) or folder .. "/calls"
    for gpu, count in files.read(report):gmatch "kernels_(%d+) (%d+)" do
      out[gpu + 1] = (out[gpu + 1] or 0) + count
    end
  end
  return out
end

local alone = {}
-- tiers: settings of memory tiers, or nil.
local function same_bits(ranks, gpus, words, delays, tiers)
  alone[words] = alone[words] or train(1, nil, words)
  local output, errors = train(ranks, gpus > 0 and gpus or nil, words .. (tiers or ""), delays)
  t.same(output, alone[words])
  local counted = gpus > 0 and kernels(ranks) or {}
  for gpu = 1, gpus do t.check(counted[gpu] > 0, ("GPU %d ran no kernel"):format(gpu - 1)) end
  for written in errors:gmatch "written (%d+)" do
    t.check(tonumber(written) > 0, "a rank moved no tile: " .. errors)
  end
end

local function case(name, f)
  t.case(name, function()
    mpi.need()
    emulated.need()
    f()
  end)
end

local steps = os.getenv "GPUS" == "all" and 20 or 4
for _, dtype in ipairs {"f32", "bf16"} do
  case("ranks, GPUs and memory tiers together give the bits of one process in " .. dtype, function()
    local words = ("shards=2 accum=4 batch=8 layers=4 embd=128 steps=%d dtype=%s"):format(steps,
                                                                                        dtype)
    local below = (" ram=10000000 disk=%s/disk"):format(folder)
    for ranks = 1, 2 do
      for gpus = 0, 2 do
        same_bits(ranks, gpus, words, seed % 1000)
        local tiers = gpus == 0 and " ram=8000000 disk=" .. folder .. "/disk" or " slots=6000000"
        if gpus == 0 or gpus == ranks then
          same_bits(ranks, gpus, words, seed % 1000, tiers)
        else
          local _, _, errors = run(ranks, gpus, words .. tiers)
          t.check(errors:find "one GPU for each process, but %d are in use", errors)
        end
        if gpus == ranks then same_bits(ranks, gpus, words, seed % 1000, tiers .. below) end
      end
    end
  end)
end

case("2 or 3 ranks with one GPU, two, or unequal numbers give the bits of one process", function()
  same_bits(2, 4, "shards=4 accum=8 batch=8 dtype=bf16 shard=weights", seed % 1000 + 1)
  same_bits(2, 3, "shards=4 accum=4 layers=3 embd=96", seed % 1000 + 1, " graphs=1")
  same_bits(3, 4, "shards=3 accum=6 batch=12 layers=1 embd=128 shard=weights")
end)

t.finish()
