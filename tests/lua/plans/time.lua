-- The time of planning with memory tiers: signals end it at once, and memory.plan_seconds limits
-- it.
-- Runs alone: it measures seconds.
local host = require "nn.host"
local t = require "nn.test"

local train = ([[$NNLUA %s/recipes/gpt2_train.lua model.layers=6 model.embd=256 memory.ram=25MB \
  memory.disk=. memory.disk_rate=500MB ]]):format(host.root)
local folder = t.folder()
-- cache: the folder of kept plans.
local function shell(text, cache)
  return t.shell(("cd %s; export XDG_CACHE_HOME=$PWD/%s; %s"):format(folder, cache or "none", text))
end

-- Planning 16 microbatches takes a few seconds. If it ends before the signal, the case is tried
-- again with a shorter delay.
t.case("a signal ends planning within a second, at any moment", function()
  math.randomseed(7)
  for i = 1, 12 do
    local name, number = "INT", 2
    if i % 2 == 0 then name, number = "TERM", 15 end
    local delay = 0.2 + 3 * math.random()
    local status, output, begin, over
    repeat
      output = select(2, shell(([[
        %s data.accum=16 memory.plan_seconds=60 steps=1 out=run%d %s >log 2>&1 & process=$!
        sleep %.3f; begin=$EPOCHREALTIME; kill -%s $process; wait $process
        echo "status $? after $begin to $EPOCHREALTIME"; cat log; rm -rf cache run%d]]):format(
          train, i, i % 3 == 0 and "--plan" or "", delay, name, i), "cache"))
      status, begin, over = output:match "status (%d+) after ([%d.]+) to ([%d.]+)"
      delay = 0.7 * delay
    until status ~= "0" or delay < 0.2
    t.same(tonumber(status), 128 + number)
    t.check(output:find("nnlua: interrupted", 1, true), output)
    local seconds = tonumber(over) - tonumber(begin)
    t.check(seconds < 1, ("%s after %.3f s took %.2f s: %s"):format(name, delay / 0.7, seconds,
                                                                  output))
  end
end)

t.case("a search that ends early has a plan, and says that it ended", function()
  local plan = train .. "data.accum=4 steps=1 --plan memory.plan_seconds=%g 2>&1"
  local status, output = shell(plan:format(0.001))
  t.check(status == 0 and output:find "\nsearch +ended after plan_seconds=0.001 with", output)
  status, output = shell(plan:format(0))
  t.check(status == 0 and output:find "\nsearch +complete\n", output)
end)

t.case("a training with a search that ended early says so before its first step", function()
  local status, output = shell(train .. [[data.accum=4 steps=1 eval_every=0 final_batches=1 \
    sample.tokens=1 memory.plan_seconds=0.001 out=early 2>&1]], "early_cache")
  t.check(status == 0 and output:find("the search for the plan ended after plan_seconds=0.001", 1,
                                      true), output)
end)

-- If other programs disturbed the measurements of one start, the next one measures again.
t.case("a later start needs no search: it uses the plan that an earlier one kept", function()
  local plan = train .. "data.accum=5 steps=1 --plan memory.plan_seconds=0 2>&1"
  local _, first = shell(plan, "later")
  t.check(first:find "\nsearch +complete\n", first)
  local status, later
  for _ = 1, 4 do
    status, later = shell(plan, "later")
    t.same(status, 0)
    if not later:find "\nsearch +complete\n" then break end
  end
  t.check(later:find "\nsearch +not needed: an earlier start kept the plan\n", later)
end)

t.finish()
