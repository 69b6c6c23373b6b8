-- The benchmark of tiers, recipes/bench_tiers.lua, on a tiny model.
local host = require "nn.host"
local t = require "nn.test"

local function bench(settings)
  return t.shell(([[
    cd %s; XDG_CACHE_HOME=$PWD/cache NNLUA_CPUS=2 $NNLUA %s/recipes/bench_tiers.lua model=custom \
    layers=4 heads=2 embd=128 vocab=100 batch=2 tokens=32 warmup=1 steps=1 disk=. %s 2>&1]]):format(
    t.folder(), host.root, settings))
end

t.case("a row of the table gives speed, bytes and prediction of a budget and a ratio", function()
  local status, output = bench "budgets=60 ratios=1"
  t.check(status == 0, output)
  t.check(output:find "tokens/s with enough memory", output)
  t.check(output:find "\n +60%% +1 +[%d.]+ [kMG]B +[%d.]+ +[%d.]+ +[%d.]+ +[%d.]+ [kMG]B", output)
end)

t.case("the table says when the disk is slower than asked", function()
  local status, output = bench "budgets=60 ratios=100000"
  t.check(status == 0, output)
  t.check(output:find "%(the disk reaches [%d.]+ GB/s, not [%d.]+ GB/s%)\n", output)
end)

t.finish()
