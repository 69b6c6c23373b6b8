-- Training of a model of ordinary ops (support/ordinary_model.lua): whatever computes the steps,
-- the losses, norms, weights, buffers and moments are those of eager training by one worker, to the
-- bit. Microbatches and shards have those of one pass up to rounding.
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local runs = require "ordinary_runs"
local same = runs.same

local half = "dtype=bf16 rounding=stochastic"
for title, words in pairs {
  ["in f32"] = "dropout=0.1", ["in 4 microbatches"] = "accum=4", ["in f64"] = "dtype=f64",
  ["in bf16 with masters"] = "dtype=bf16 between=1",
  ["in bf16 with stochastic rounding"] = half .. " gradients=bf16 accum=4",
  ["in small tiles"] = "tile=5 rows=7", ["in small tiles and microbatches"] = "tile=5 accum=2",
  ["with groups of parameters and hooks"] = "groups=2 skip=1 clip=0.5 hooks=1",
  ["with Lion and an LSTM"] = "optim=Lion recurrent=LSTM",
  ["with averages of the weights and a second function"] = "average=1 between=1 accum=2",
} do
  t.case("compiled steps have the bits of eager ones " .. title, function() same(words) end)
  t.case("steps that recompute activations have the bits of eager ones " .. title, function()
    same(words, "activations=recompute")
  end)
end

t.case("workers, their groups of tasks and schedulers change no bit", function()
  same("tile=5 rows=7", nil, "NNLUA_CPUS=2")                          -- groups of tasks
  same("tile=5 rows=7", "profile=1", "NNLUA_CPUS=2")                 -- none
  same("tile=5 accum=2", nil, "NNLUA_CPUS=2 STARPU_SCHED=dmdas")
  same(half .. " gradients=bf16 accum=4", "activations=recompute", "NNLUA_CPUS=2 NNLUA_DELAYS=3")
end)

-- Rows ignore unequal numbers of targets.
t.case("microbatches and shards have the losses and norms of one pass to 1e-5", function()
  local function numbers(words)
    local found = {}
    for loss, norm in runs.train("buffer=0 " .. words):gmatch "step %d+ (%S+) (%S+)\n" do
      table.insert(found, tonumber(loss))
      table.insert(found, tonumber(norm))
    end
    return found
  end
  local expected = numbers ""
  t.same(#expected, 6)
  for _, words in ipairs {"accum=4", "accum=8 activations=recompute", "shards=4 accum=8"} do
    for i, value in ipairs(numbers(words)) do t.near(value, expected[i], {rel = 1e-5}, words) end
  end
end)

t.finish()
