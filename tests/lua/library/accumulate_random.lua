-- Random small modules of ordinary ops: the gradients of a batch in microbatches are those of one
-- pass, eager and compiled, for every parameter; with clipping, steps and values that are kept from
-- one microbatch to the next. The modules consist of layers, the tutorial's own ones, and every
-- differentiable op of the registry (support/random_modules.lua); the tolerances are in
-- support/accumulation.lua. ACCUMULATE_MODULES: how many modules; NNLUA_TEST_SEED: the first.
local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local accumulation = require "accumulation"
local random_modules = require "random_modules"

local SHORT = 24
local count = tonumber(os.getenv "ACCUMULATE_MODULES") or SHORT
local first = tonumber(os.getenv "NNLUA_TEST_SEED") or 1
local long = count > SHORT
nn.devices {cpus = 1}            -- small tasks take least time on one worker

local eager_counts = long and {1, 2, 3, 4, 8} or {3}
local compiled_counts = long and {1, 2, 3, 4, 8} or {1, 2, 4, 8}

-- Calls f(m, twin) for the modules of the seeds from `first` to `last` that `wanted` accepts.
local function each(last, wanted, f)
  for seed = first, first + last - 1 do
    local described = random_modules.describe(seed)
    if not wanted or wanted(described) then
      local m = random_modules.make(seed)
      f(m, random_modules.twin(m))
    end
  end
end

local function one_pass(model, ids, targets)
  local loss = model(ids, targets)
  loss:backward()
  return loss:detach()
end

-- run(model, ids, targets) in this number of microbatches.
local function in_microbatches(microbatches)
  return function(model, ids, targets) return nn.accumulate(model, microbatches, ids, targets) end
end

-- Compares microbatches with one pass in all numbers of them.
local function compare_all(tally, m, expected, finish)
  for _, compiled in ipairs {false, true} do
    for _, microbatches in ipairs(compiled and compiled_counts or eager_counts) do
      local run = in_microbatches(microbatches)
      tally:compare(m, ("%s, %d microbatches"):format(compiled and "compiled" or "eager",
                                                     microbatches), function()
        return accumulation.differences(m, expected, function(...)
          local loss = run(...)
          if finish then finish(...) end
          return loss
        end, compiled and "unguarded")
      end)
    end
  end
end

local function not_unequal(d) return d.ignored ~= "unequal" end
local function unequal(d) return d.ignored == "unequal" end

for _, group in ipairs {{"equal numbers of targets", not_unequal},
                        {"other numbers of targets in each microbatch", unequal}} do
  local title, wanted = unpack(group)
  t.case(("microbatches with %s have the gradients of one pass"):format(title), function()
    local tally = accumulation.tally(title)
    each(count, wanted, function(m, twin)
      compare_all(tally, m, accumulation.reference(m, twin, one_pass))
    end)
    print("  " .. tally:summary())
    tally:finish(t.check)
  end)
end

t.case("the oracle's gradients are finite differences", function()
  each(long and 40 or 6, function(d) return d.smooth end, function(m, twin)
    local values = {}
    for _, p in ipairs(twin.model:parameters()) do
      if p.tensor.requires_grad then values[#values + 1] = p.tensor end
    end
    local at = accumulation.slope(twin, function(model)
      return (model(m.ids, m.targets))
    end, values)
    t.check(at <= 1e-5, ("%s\n  the slope differs by %.2g"):format(m.text, at))
  end)
end)

local function norm_of(model)
  local sum = 0
  for _, p in ipairs(model:parameters()) do
    if p.tensor.grad then sum = sum + p.tensor.grad:to "f64":square():sum():item() end
  end
  return sum ^ 0.5
end

t.case("gradients that are clipped after the microbatches are those of one pass", function()
  local tally = accumulation.tally "clipped"
  each(math.ceil(count / 4), not_unequal, function(m, twin)
    one_pass(twin.model, m.ids, m.targets)
    local limit = norm_of(twin.model) * 0.4
    local function clip(model) nn.clip_grad_norm_(model, limit) end
    local expected = accumulation.reference(m, twin, function(model, ...)
      local loss = one_pass(model, ...)
      clip(model)
      return loss
    end)
    compare_all(tally, m, expected, clip)
  end)
  tally:finish(t.check)
end)

t.case("small tiles and recomputed activations give the gradients of one pass", function()
  local tally = accumulation.tally "recomputed"
  nn.activations "recompute"
  nn.tiles {tokens = 10, vocab = 4}
  local at = 0
  each(math.ceil(count / 4), not_unequal, function(m, twin)
    local expected = accumulation.reference(m, twin, one_pass)
    at = at + 1
    local microbatches = compiled_counts[at % #compiled_counts + 1]
    tally:compare(m, microbatches .. " microbatches", function()
      return accumulation.differences(m, expected, in_microbatches(microbatches),
                                        "unguarded")
    end)
  end)
  nn.tiles {tokens = 0, vocab = 0}
  nn.activations "auto"
  tally:finish(t.check)
end)

t.finish()
