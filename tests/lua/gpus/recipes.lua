-- Recipes on GPUs, with the CUDA run time of tests/emulated/runtime, which needs no GPU: plans, and
-- the settings for GPUs.
local host = require "nn.host"
local t = require "nn.test"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local emulated = require "emulated"
local base = t.folder()

local function devices(description) return emulated.devices(description, base) end
local case = emulated.case

case("the plan of a recipe has the GPU's memory, the bytes in RAM and the link", function()
  local status, output = t.shell(("%s timeout -k 1 100 $NNLUA %s/recipes/gpt2_train.lua "
    .. "model.embd=64 memory.gpu=2MB --plan 2>&1"):format(devices "gpus=1", host.root))
  t.same(status, 0)
  for _, line in ipairs {"\nGPU +[12]%.%d MB: ", "\nRAM +[%d.]+ MB", "the link to the GPU is busy",
                         "the GPU computes %d+ %%", "\ntime +about "} do
    t.check(output:find(line), line .. ": " .. output)
  end
  status, output = t.shell(("%s timeout -k 1 100 $NNLUA %s/recipes/gpt2_train.lua model.embd=128 "
    .. "memory.gpu=4MB memory.ram=8MB memory.disk=%s memory.disk_in_ram=true --plan 2>&1"):format(
      devices "gpus=1", host.root, base))
  t.same(status, 0)
  for _, line in ipairs {"\nGPU +[34]%.%d MB: ", "\nRAM +[78]%.%d MB: ", "\ndisk +[%d.]+ MB",
                         "bound by .-the disk %d+ %%", " a day\n", "\ntime +about "} do
    t.check(output:find(line), line .. ": " .. output)
  end
end)

case("a training that exceeds the only GPU gets memory.gpu, and keeps its bits", function()
  local function train(device, out)
    local status, output = t.shell(("%s timeout -k 1 100 $NNLUA %s/recipes/gpt2_train.lua "
      .. "model.embd=256 model.layers=4 data.batch=160 model.dtype=f32 steps=2 log_every=1 "
      .. "eval_every=0 final_batches=1 sample.tokens=0 out=%s/%s 2>&1"):format(
      device, host.root, base, out))
    t.check(status == 0, output)
    local losses = {}
    for line in io.lines(("%s/%s/metrics.jsonl"):format(base, out)) do
      losses[#losses + 1] = line:match '"event":"step".-"loss":([^,}]+)'
        or line:match '"loss":([^,}]+).-"event":"step"'
    end
    return output, losses
  end
  local planned, losses = train(devices "gpus=1 memory=640", "exceeded")
  t.check(planned:find "memory.gpu=%d+MB: a step needs [%d.]+ .B, and the GPU has [%d.]+ MB",
          planned)
  local fits, same = train(devices "gpus=1 memory=4096", "resident")
  t.check(not fits:find "memory.gpu", fits)
  t.check(#losses == 2, table.concat(losses, " "))
  t.same(losses, same)
end)

case("a recipe's settings choose the GPUs", function()
  local command = "%s timeout -k 1 100 $NNLUA %s/recipes/gpt2_train.lua steps=1 model.layers=1 "
    .. "out=%s/recipe devices.matmul_precision=high devices.gpus=%d 2>&1"
  for gpus, found in pairs {[1] = "and 1 GPU workers", [3] = "asks for 3 GPUs; .- have 2"} do
    local _, output = t.shell(command:format(devices "gpus=2", host.root, base, gpus))
    t.check(output:find(found), output)
  end
end)

t.finish()
