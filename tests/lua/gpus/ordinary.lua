-- Training of a model of ordinary ops (support/ordinary_model.lua) on emulated GPUs: its results
-- are those of eager training by a CPU worker, to the bit.
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local emulated = require "emulated"
local runs = require "ordinary_runs"
runs.environment = emulated.none

local folder = t.folder()        -- StarPU measures the links once
local function same(gpus, words, more)
  local errors = runs.same(words, more, emulated.devices("gpus=" .. gpus, folder))
  for i = 0, gpus - 1 do
    t.check(emulated.counts(folder)["kernels_" .. i] > 0, ("GPU %d ran no kernel"):format(i))
  end
  return errors
end

for title, how in pairs {
  ["one GPU in 4 microbatches has"] = {1, "accum=4 between=1"},
  ["two GPUs with CUDA graphs have"] = {2, "tile=5 accum=2 dropout=0.1",
                                        "graphs=1 activations=recompute"},
  ["two GPUs and CPU workers, in bf16, have"] =
    {2, "tile=5 dtype=bf16 rounding=stochastic groups=2 average=1", "where=any"},
} do
  emulated.case(title .. " the bits of a CPU worker", function() same(unpack(how)) end)
end

emulated.case("a GPU with less memory than the training needs has, too", function()
  local moved = same(1, "large=1 accum=2 between=1", "slots=6500000 report=1"):match "slots (%d+)"
  t.check(tonumber(moved) > 0, "nothing was moved")
end)

t.finish()
