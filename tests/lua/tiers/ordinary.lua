-- Training of a model of ordinary ops (support/ordinary_model.lua) with less memory than it needs:
-- its results are those of eager training in enough memory, to the bit.
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local runs = require "ordinary_runs"

-- Trains with this many bytes of RAM, which are about 0.6 of those that hold all.
local function compare(ram, words, more, before)
  local tiers = ("report=1 ram=%d disk=%s %s"):format(ram, t.folder(), more or "")
  local errors = runs.same("large=1 " .. words, tiers, before)
  local peak, read, written = errors:match "peak (%d+)\ndisk (%d+) (%d+)\n"
  t.check(tonumber(peak) <= ram and tonumber(read) > 0 and tonumber(written) > 0, errors)
end

for title, settings in pairs {
  ["in 4 microbatches with groups of parameters"] = {6300000, "accum=4 groups=2"},
  ["with recomputation, dropout and a second function between steps"] =
    {6500000, "accum=2 between=1 dropout=0.1", "activations=recompute"},
  ["in bf16 with stochastic rounding"] =
    {6000000, "dtype=bf16 rounding=stochastic between=1 average=1"},
  ["in small tiles by two workers"] = {6300000, "tile=16 between=1", nil, "NNLUA_CPUS=2"},
} do
  t.case("less memory changes no bit " .. title, function()
    compare(unpack(settings, 1, table.maxn(settings)))
  end)
end

t.finish()
