-- Cost of a profile: compares training steps, and tiny tasks of a compiled function and of eager
-- module calls, with and without a profile, in turns. The table shows the median times and the
-- median ratio of adjacent measurements.
--   nnlua recipes/bench_profile.lua model=gpt2 batch=1 tokens=256 rounds=7
local units = require "nn.base.units"
local nn, GPT2 = require "nn", require "models.gpt2"

local cfg = nn.config({
  model = nn.field("gpt2", "gpt2, gpt2-medium, gpt2-large, gpt2-xl, or none: only tiny tasks"),
  batch = nn.field(1, "sequences per step", {min = 1}),
  tokens = nn.field(256, "tokens per sequence", {min = 1}),
  rounds = nn.field(7, "rounds of training steps, each with and without a profile", {min = 1}),
  tiny_rounds = nn.field(400, "rounds of tiny compiled tasks; eager: 5 times as many", {min = 1}),
}, arg)

local function training()
  local size = GPT2.size(cfg.model)
  local model = GPT2(size)
  local optim = nn.AdamW(model, {clip = 1})
  local step = nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
  local options = {low = 0, high = size.vocab, axes = "batch,time"}
  local ids = nn.uniform({cfg.batch, cfg.tokens}, options):to("i32")
  return function() step(ids, ids) end
end

-- 2000 tasks of a few microseconds, most of which can run in parallel.
local function tiny_compiled()
  local x = nn.zeros(1600):retile {16}
  local f = nn.compile(function(y)
    for _ = 1, 20 do y = y + 1 end
    return y
  end)
  return function() f(x) end
end

local function tiny_eager()
  local layer, x = nn.Linear(4, 4), nn.ones(4, 4)
  return function()
    local y = x
    for _ = 1, 100 do y = layer(y) end
  end
end

-- Seconds of f() and of all tasks that it submits.
local function seconds(f)
  nn.sync()
  local start = nn.now()
  f()
  nn.sync()
  return nn.now() - start
end

-- The median and its 95 % confidence interval: the order statistics n/2 -+ 0.98 sqrt(n).
local function median(list)
  table.sort(list)
  local middle, around = (#list + 1) / 2, 0.98 * math.sqrt(#list)
  local function at(rank) return list[math.max(1, math.min(#list, math.floor(rank + 0.5)))] end
  return at(middle), at(middle - around), at(middle + around)
end

-- The speed of the machine varies over time. So each ratio compares adjacent measurements, and the
-- order alternates.
local function measure(name, f, rounds)
  local off, on, ratio, tasks = {}, {}, {}, nil
  f()
  for i = 1, rounds do
    if i % 2 == 0 then off[i] = seconds(f) end
    tasks = nn.profile(function() on[i] = seconds(f) end).recorded
    if i % 2 == 1 then off[i] = seconds(f) end
    ratio[i] = on[i] / off[i]
  end
  print(("%-22s %8d %12s %12s %8.3f   %.3f to %.3f"):format(
    name, tasks, units.seconds((median(off))), units.seconds((median(on))), median(ratio)))
end

print(("%-22s %8s %12s %12s %8s   %s"):format("", "tasks", "off", "on", "ratio", "(95 %)"))
if cfg.model ~= "none" then measure(cfg.model .. ", a step", training(), cfg.rounds) end
measure("tiny tasks, compiled", tiny_compiled(), cfg.tiny_rounds)
measure("tiny tasks, eager", tiny_eager(), 5 * cfg.tiny_rounds)
