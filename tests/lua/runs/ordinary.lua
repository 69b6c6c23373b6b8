-- Checkpoints of a model of ordinary ops (support/ordinary_model.lua): a training that is saved and
-- goes on in another process has the bits of one that is not, whatever computes its second half.
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"
local runs = require "ordinary_runs"

-- The lines after the second step.
local function rest(output) return output:match "\n(step 3 .*)$" end

-- Trains two steps, and two more in a process with more words, before and options.
local function resumed(words, more, before, options)
  local out = t.folder()
  runs.train(("%s steps=2 save=%s"):format(words, out))
  local output = runs.train(("%s steps=4 resume=%s/checkpoint-000002 %s"):format(
    words, out, more or ""), before, options)
  t.same(output, rest(runs.plain(words .. " steps=4")), words)
end

for title, words in pairs {
  ["in 4 microbatches"] = "accum=4",
  ["in bf16 with masters, tiles and groups"] = "dtype=bf16 groups=2 tile=5 between=1",
  ["with Lion and gradients in bf16"] = "optim=Lion dtype=bf16 gradients=bf16",
} do
  t.case("a resumed training has the bits of one process " .. title, function() resumed(words) end)
end

t.case("so has one that goes on in less memory, recomputing", function()
  resumed("large=1 accum=2", ("activations=recompute ram=7000000 disk=%s"):format(t.folder()),
          "NNLUA_CPUS=2")
end)

t.case("so has one that goes on with two ranks", function()
  mpi.need()
  resumed("buffer=0 shards=2", nil, "", "--ranks 2")
end)

t.finish()
