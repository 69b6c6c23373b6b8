-- Learning-rate schedules and schedulers. The oracles are nanoGPT's formula, as in
-- tests/bench/torch_char.py, and torch.optim.lr_scheduler (tests/golden/make_optim.py).
local nn = require "nn"
local t = require "nn.test"

local path = package.loaded["nn.host"].root .. "/tests/golden/optim.safetensors"
local golden = nn.load_safetensors(path)
local config = require("nn.io.files").parse_json(
  require("nn.io.safetensors").open(path).metadata.config)

t.case("cosine with warm-up is nanoGPT's", function()
  local lr = nn.schedule {kind = "cosine", lr = 1e-3, min_lr = 1e-4, warmup = 100, steps = 2000}
  for step = 1, 2000 do
    local k = step - 1                                   -- nanoGPT counts from 0
    local expected = 1e-3 * (k + 1) / 101
    if k >= 100 then
      local progress = (k - 100) / 1900
      expected = 1e-4 + 0.5 * (1 + math.cos(math.pi * progress)) * 9e-4
    end
    t.near(lr(step), expected, {rel = 1e-12})
  end
  t.near(lr(5000), 1e-4, {rel = 1e-12})                  -- constant after the end
end)

t.case("constant does not change after the warm-up", function()
  local lr = nn.schedule {kind = "constant", lr = 0.5, warmup = 3}
  t.near({lr(1), lr(2), lr(3), lr(4), lr(1e6)}, {0.125, 0.25, 0.375, 0.5, 0.5})
end)

t.case("linear decreases by the same amount each step", function()
  local lr = nn.schedule {kind = "linear", lr = 1, min_lr = 0.5, warmup = 0, steps = 10}
  t.near({lr(1), lr(2), lr(6), lr(11)}, {1, 0.95, 0.75, 0.5})
end)

t.case("wsd is constant, then decreases in the last fifth", function()
  local lr = nn.schedule {kind = "wsd", lr = 1, min_lr = 0, warmup = 10, steps = 110}
  t.near({lr(5), lr(11), lr(91), lr(101), lr(111)}, {5 / 11, 1, 1, 0.5, 0})
end)

t.case("a schedule without a setting that it needs is an error", function()
  local function says(options, message) t.fails(function() nn.schedule(options) end, message) end
  says({kind = "cosin", lr = 1}, "unknown kind 'cosin'; choose one of constant, cosine, "
       .. "linear, wsd")
  says({kind = "linear", lr = 1}, "the kind 'linear' needs `steps`")
  says({steps = 1}, "give lr")
  says({lr = 1, min_lr = 2, steps = 1}, "min_lr=2 is larger than lr=1")
end)

local function optimizer(lr) return nn.RMSprop({nn.zeros(1, {grad = true})}, {lr = lr or 0.1}) end

-- The rates at the start and after each step; metrics: arguments of step().
local function rates(make, metrics)
  local optim = optimizer()
  local scheduler, out = make(optim), {}
  for step = 1, 100 do
    out[step] = optim.lr
    scheduler:step(metrics and metrics[step])
  end
  out[101] = optim.lr
  return out
end

t.case("schedulers have PyTorch's rates over 100 steps", function()
  t.check(#config.schedulers == 14, "schedulers are missing")
  for i, entry in ipairs(config.schedulers) do
    local name, options = unpack(entry)
    local got = rates(function(optim) return nn[name](optim, options) end)
    t.near(got, golden["scheduler/" .. i]:table(), {rel = 1e-12, abs = 1e-16})
  end
  local got = rates(function(optim)
    return nn.SequentialLR(optim, {milestones = {10, 60}, schedulers = {
      nn.LinearLR(optim, {start_factor = 0.1, total_iters = 10}),
      nn.CosineAnnealingLR(optim, {T_max = 50}), nn.ExponentialLR(optim, {gamma = 0.9})}})
  end)
  t.near(got, golden.sequential:table(), {rel = 1e-12, abs = 1e-16})
end)

t.case("ReduceLROnPlateau has PyTorch's rates over 100 steps", function()
  local metrics = golden.metrics:table()
  for i, options in ipairs(config.plateau) do
    local got = rates(function(optim) return nn.ReduceLROnPlateau(optim, options) end, metrics)
    t.near(got, golden["plateau/" .. i]:table(), {rel = 1e-12})
  end
end)

t.case("a scheduler follows the own rate of each group, and continues from its state", function()
  local function make(lr)
    local a, b = nn.zeros(1, {grad = true}), nn.zeros(1, {grad = true})
    local optim = nn.SGD({{params = {a}, lr = lr or 0.1}, {params = {b}}}, {lr = lr or 1})
    return nn.LambdaLR(optim, {lr_lambda = {function(k) return 1 / (k + 1) end,
                                            function(k) return 0.5 ^ k end}})
  end
  local first, second = make(), make(0.5)       -- the state has the rates from before, too
  for _ = 1, 3 do first:step() end
  t.near(first:get_last_lr(), {0.025, 0.125}, {rel = 1e-12})
  second:load(first:state())
  first:step()
  second:step()
  t.same(second:get_last_lr(), first:get_last_lr())
  local metrics = golden.metrics:table()
  local function plateau(optim) return nn.ReduceLROnPlateau(optim, {patience = 3}) end
  local whole, before = rates(plateau, metrics), optimizer()
  local one = plateau(before)
  for step = 1, 50 do one:step(metrics[step]) end
  local after = optimizer(before.lr)
  local two = plateau(after)
  two:load(one:state())
  for step = 51, 100 do two:step(metrics[step]) end
  t.same(after.lr, whole[101])
end)

t.case("a wrong use of a scheduler says what to do", function()
  local optim = optimizer()
  local a, b = nn.StepLR(optim, {step_size = 1}), nn.ExponentialLR(optim, {gamma = 0.5})
  a:step()
  t.fails(function() b:step() end, "ExponentialLR: a StepLR already sets the rates of this "
          .. "optimizer; combine schedulers with nn.SequentialLR")
  t.fails(function() nn.StepLR(optim) end, "StepLR: step_size is nil; a whole number of at least 1")
  t.fails(function() nn.StepLR(optim, {stepsize = 3}) end, "did you mean 'step_size'")
  t.fails(function() nn.StepLR({lr = 3}, {step_size = 3}) end, "StepLR: the optimizer is a table")
  t.fails(function() nn.OneCycleLR(optim, {max_lr = 1, cycle_momentum = false}) end,
          "OneCycleLR: total_steps is nil; give it, or epochs and steps_per_epoch")
  t.fails(function() a:load {last_epoch = 3, base = {1, 2}} end, "base is 2; 1 are needed")
  t.fails(function() nn.OneCycleLR(optim, {max_lr = 1, total_steps = 5}) end,
          "pass cycle_momentum = false")
  local cycle = nn.OneCycleLR(optimizer(), {max_lr = 1, total_steps = 2, cycle_momentum = false})
  cycle:step()
  cycle:step()
  t.fails(function() cycle:step() end, "OneCycleLR: this is step 3; total_steps is 2")
  t.fails(function() nn.MultiStepLR(optim, {milestones = {5, 3}}) end,
          "a milestone is 3; a whole number of at least 5")
  t.fails(function() nn.SequentialLR(optim, {schedulers = {a, b}, milestones = {}}) end,
          "there are 0 milestones; 1 are needed")
  t.fails(function() nn.ReduceLROnPlateau(optim):step(nn.ones(1)) end,
          "ReduceLROnPlateau: the value is a tensor; a number")
  t.fails(function() a:load() end, "load: last_epoch is nil; a whole number of at least 0")
  t.fails(function() return nn.CyclicLR end, "nn has no 'CyclicLR'; use nn.LambdaLR")
end)

t.finish()
