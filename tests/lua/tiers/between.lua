-- Compiled functions whose memory is planned, with other programs and other uses of their tensors
-- between two runs: the values are those of a run that fits into memory, to the bit. TIERS_BETWEEN:
-- how many random settings; TIERS_DISTURBED=1: all with delays and nn.checks or tests/disturb.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local turns = require "tier_turns_random"

local function run(ram, what)
  local log = t.folder() .. "/log"
  local status, output = t.shell(("timeout -k 1 60 $NNLUA %s %d %s %s 2>%s"):format(
    host.root .. "/tests/lua/support/tiers_between.lua", ram, t.folder(), what, log))
  t.check(status == 0, output .. files.read(log))
  return output, files.read(log)
end

for what, name in pairs {
  inputs = "a change that reads an input has the input of its run",
  reads = "weights that no waiting change uses can be read between runs",
  argument = "a tensor can be used by a function and be its argument too",
  freed = "the changes of a function that is freed are made",
  ends = "a process ends while changes wait",
} do
  t.case(name, function()
    local expected = run(0, what)
    local output, log = run(5e6, what)
    t.same(output, expected)
    if what ~= "ends" then t.check(tonumber(log:match "read (%d+)") > 0, "nothing was moved") end
  end)
end

-- A validation and a sample lost values of the step in silence: tiles below 64 kB had slots in one
-- plan, and not in the next.
t.case("no value is lost by programs that place other tiles than the step", function()
  turns.check {words = "accum=4 batch=4 context=40 embd=192 heads=2 layers=1 seed=385 steps=3 "
    .. "vocab=334 gradients=3 validate=3 sample=2 plain=1", environment = "NNLUA_CPUS=1",
    share = 0.3553}
end)

-- The error stated the bytes for running without a plan, but another program had slots already.
t.case("the bytes that an error states suffice beside plans of other programs", function()
  turns.check {words = "accum=4 activations=recompute batch=4 context=41 dtype=bf16 embd=32 "
    .. "heads=4 layers=1 model=tied_llama rounding=nearest seed=750 steps=6 tile=12 vocab=110 "
    .. "second=1 average=3 sample=3", environment = "NNLUA_CPUS=2", share = 0.3305}
end)

local count = tonumber(os.getenv "TIERS_BETWEEN") or 8
t.case(count .. " random models with other programs in turns have the bits of enough memory",
       function() turns.check_random(count, tonumber(os.getenv "NNLUA_TEST_SEED") or 9) end)

t.finish()
