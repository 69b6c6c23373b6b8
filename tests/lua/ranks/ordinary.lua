-- Training of a model of ordinary ops (support/ordinary_model.lua) in shards: two ranks have the
-- bits of eager training on one.
-- Runs alone: a rank that is silent for seconds counts as lost.
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"
local runs = require "ordinary_runs"

for title, how in pairs {
  ["with parts of the weights, in bf16, recomputing"] =
    {"shards=2 shard=weights accum=4 dtype=bf16", "activations=recompute"},
  ["in 4 shards of small tiles with dropout and averages of the weights"] =
    {"shards=4 accum=4 tile=5 dropout=0.1 average=1 groups=2 clip=0.5"},
} do
  t.case("two ranks have the bits of one " .. title, function()
    mpi.need()
    runs.same("buffer=0 " .. how[1], how[2], "", "--ranks 2")
  end)
end

t.case("one process computes several shards compiled as it does eagerly, with a buffer", function()
  runs.same("shards=2 accum=4")
end)

t.case("ranks refuse a buffer that each shard would change", function()
  mpi.need()
  local status, output = t.shell(("timeout -k 1 100 $NNLUA --ranks 2 %s shards=2 2>&1"):format(
    package.loaded["nn.host"].root .. "/tests/lua/support/ordinary.lua"))
  t.check(status == 1 and output:find("copy_: changes a tensor that lasts, for one shard", 1, true),
          output)
end)

t.finish()
