-- What recording tasks costs: training steps, and tiny tasks of a compiled function and of eager
-- ops, with and without a profile, in turns. The table gives medians.
--   nnlua recipes/bench_profile.lua model=gpt2 batch=1 tokens=256 rounds=7
local units = require "nn.units"
local nn, GPT2 = require "nn", require "models.gpt2"

local cfg = nn.config({
  model = nn.field("gpt2", "gpt2, gpt2-medium, gpt2-large, gpt2-xl; or none: only tiny tasks"),
  batch = nn.field(1, "sequences a step", {min = 1}),
  tokens = nn.field(256, "tokens of a sequence", {min = 1}),
  rounds = nn.field(7, "of each with and without", {min = 1}),
  tiny_rounds = nn.field(100, "likewise, of the tiny tasks", {min = 1}),
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

-- 2000 tasks of a few microseconds, most of which can run at the same time.
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
    for _ = 1, 500 do y = layer(y) end
  end
end

-- Seconds of f() and all that it submitted.
local function seconds(f)
  nn.sync()
  local start = nn.now()
  f()
  nn.sync()
  return nn.now() - start
end

local function median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

local function measure(name, f, rounds)
  local off, on, tasks = {}, {}, nil
  f()
  for i = 1, rounds do
    off[i] = seconds(f)
    local p = nn.profile(function() on[i] = seconds(f) end)
    tasks = p.recorded
  end
  local without, with = median(off), median(on)
  print(("%-22s %8d %12s %12s %8.3f"):format(name, tasks, units.seconds(without),
                                             units.seconds(with), with / without))
end

print(("%-22s %8s %12s %12s %8s"):format("", "tasks", "off", "on", "ratio"))
if cfg.model ~= "none" then measure(cfg.model .. ", a step", training(), cfg.rounds) end
measure("tiny tasks, compiled", tiny_compiled(), cfg.tiny_rounds)
measure("tiny tasks, eager", tiny_eager(), cfg.tiny_rounds)
