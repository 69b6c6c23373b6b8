-- Compares the gradients of a batch in microbatches with those of one pass, for random modules
-- (random_modules.lua) and models.
--
-- The oracle is one eager pass of a twin in f64, whose gradients finite differences confirm. The
-- error of a gradient is its largest difference from the twin's. It may be a tolerance times the
-- largest element of the gradient (at least a thousandth of that of all gradients), or a few times
-- the error of one pass in the same dtype, which is larger in bf16 and where terms of a sum cancel.
local nn = require "nn"

local M = {}
local TOLERANCE = {f32 = 1e-6, f64 = 1e-12, bf16 = 2 ^ -6}
local ROUNDING = 8               -- errors of one pass
local SMALL = 1e-3               -- of the largest element of all

local function clear(model)
  for _, p in ipairs(model:parameters()) do p.tensor.grad = nil end
end

-- Calls run(model), which leaves gradients in .grad and returns tensors -> both as arrays of
-- numbers, by path or "result I".
local function values_of(model, run, ...)
  clear(model)
  local out = {}
  for i, x in ipairs {run(model, ...)} do out["result " .. i] = {x:numbers()} end
  for _, p in ipairs(model:parameters()) do
    if p.tensor.grad then out[p.path] = {p.tensor.grad:numbers()} end
  end
  clear(model)
  return out
end

-- The same of a compiled function. expected: the names of the values. unguarded: it runs in a
-- coroutine, so that guards compare nothing, which takes half the time.
local function values_of_compiled(model, run, expected, unguarded, ...)
  local names, tensors = {}, {}
  for _, p in ipairs(model:parameters()) do
    if expected[p.path] then names[#names + 1], tensors[#tensors + 1] = p.path, p.tensor end
  end
  local count, without = #names, {}
  for _, p in ipairs(model:parameters()) do
    if not expected[p.path] then without[#without + 1] = p end
  end
  clear(model)
  local function f(...)
    local more, out = {run(model, ...)}, {}
    for i, x in ipairs(tensors) do
      out[i] = x.grad or error(names[i] .. " has no gradient", 0)
    end
    for i, x in ipairs(more) do out[count + i] = x end
    for _, p in ipairs(without) do
      if p.tensor.grad then error(p.path .. " has a gradient", 0) end
    end
    return unpack(out)
  end
  local results, out = {nn.compile(unguarded and coroutine.wrap(f) or f)(...)}, {}
  for i, x in ipairs(results) do
    out[names[i] or "result " .. i - count] = {x:numbers()}
  end
  return out
end

-- The largest difference of two lists of numbers, and the largest element of the second.
local function distance(a, b)
  local x, y, worst, scale = a[1], b[1], 0, 0
  if a[2] ~= b[2] then return math.huge, 0 end
  for i = 0, a[2] - 1 do
    local d = math.abs(x[i] - y[i])
    worst, scale = d == d and math.max(worst, d) or math.huge, math.max(scale, math.abs(y[i]))
  end
  return worst, scale
end

--- reference(m, twin, run, tolerance) -> {[name] = {values=, scale=, allowed=}}: what run(model,
--- ids, targets) computes eagerly of the twin in f64 (its results, and the gradients that it
--- leaves), and the error that is allowed. m: {model=, ids=, targets=, dtype=}. tolerance: instead
--- of that of the dtype.
function M.reference(m, twin, run, tolerance)
  local exact = values_of(twin.model, run, m.ids, m.targets)
  local own = values_of(m.model, run, m.ids, m.targets)
  local out, largest = {}, 0
  for name, values in pairs(exact) do
    local rounding, scale = distance(own[name] or {{}, 0}, values)
    out[name] = {values = values, scale = scale, allowed = ROUNDING * rounding}
    largest = math.max(largest, scale)
  end
  for _, e in pairs(out) do
    local scale = math.max(e.scale, SMALL * largest)
    e.allowed = math.max(e.allowed, (tolerance or TOLERANCE[m.dtype]) * scale)
  end
  return out
end

--- differences(m, expected, run, compiled) -> text of the values that differ from the reference
--- after run(model, ids, targets), or nil. compiled: true, "unguarded" (recorded sooner), or nil.
function M.differences(m, expected, run, compiled)
  local found
  if compiled then
    found = values_of_compiled(m.model, run, expected, compiled == "unguarded", m.ids, m.targets)
  else
    found = values_of(m.model, run, m.ids, m.targets)
  end
  local bad = {}
  for name in pairs(found) do
    if not expected[name] then bad[#bad + 1] = name .. ": a gradient where none is expected" end
  end
  for name, e in pairs(expected) do
    local d = found[name] and distance(found[name], e.values) or math.huge
    if d > e.allowed then
      bad[#bad + 1] = ("%s: off by %.2g of %.2g; %.2g is allowed"):format(name, d, e.scale,
                                                                         e.allowed)
    end
  end
  table.sort(bad)
  return #bad > 0 and table.concat(bad, ", ", 1, math.min(#bad, 3)) or nil
end

--- slope(m, loss_of, parameters) -> the relative difference of the slope of loss_of(model) along a
--- random direction, by its gradient and by finite differences, in f64.
function M.slope(m, loss_of, parameters)
  local STEP, directions = 1e-6, {}
  clear(m.model)
  loss_of(m.model):backward()
  local slope = 0
  nn.seed(41)
  for i, p in ipairs(parameters) do
    directions[i] = nn.randn_like(p)
    if p.grad then slope = slope + (p.grad * directions[i]):sum():item() end
  end
  local function at(step)
    return nn.no_grad(function()
      for i, p in ipairs(parameters) do p:add_(directions[i] * step) end
      local loss = loss_of(m.model):item()
      for i, p in ipairs(parameters) do p:add_(directions[i] * -step) end
      return loss
    end)
  end
  local found = (at(STEP) - at(-STEP)) / (2 * STEP)
  clear(m.model)
  return math.abs(found - slope) / math.max(math.abs(slope), 1e-3)
end

--- Tally(what): counts comparisons, and collects the text of those that differ.
local Tally = {}
Tally.__index = Tally
function M.tally(what)
  return setmetatable({what = what, modules = 0, wrong = 0, runs = 0, wrong_runs = 0, lines = {}},
                      Tally)
end

--- tally:compare(m, title, f): f() -> text of differences or nil; an error counts as one.
function Tally:compare(m, title, f)
  if self.last ~= m then
    self.last, self.modules, self.is_wrong = m, self.modules + 1, false
  end
  self.runs = self.runs + 1
  local good, text = pcall(f)
  if good and not text then return end
  self.wrong_runs = self.wrong_runs + 1
  if not self.is_wrong then
    self.is_wrong, self.wrong = true, self.wrong + 1
    self.lines[#self.lines + 1] = m.text
  end
  self.lines[#self.lines + 1] = ("  %s: %s"):format(title, text)
end

--- tally:summary() -> "3 of 40 modules differ (5 of 160 runs)".
function Tally:summary()
  return ("%s: %d of %d modules differ (%d of %d runs)"):format(
    self.what, self.wrong, self.modules, self.wrong_runs, self.runs)
end

--- tally:finish(check): check(condition, message) that nothing differs; the message shows the first
--- modules that do.
function Tally:finish(check)
  local shown = table.concat(self.lines, "\n    ", 1, math.min(#self.lines, 24))
  check(self.wrong == 0, self:summary() .. "\n    " .. shown)
end

return M
