-- What a training run would take: the step is recorded and played on imaginary workers; nothing is
-- computed and no tensor is allocated.
local compile = require "nn.compile"
local grad = require "nn.grad"
local lib = require "nn.ffi"
local units = require "nn.units"

local M = {}
local SEARCH_SECONDS = 4         -- for the largest batch

local few, seen                  -- while a step is recorded for a plan: parts to record, and all

--- parts_to_record(parts) -> how many parts of a batch nn.accumulate records: all, or a few where
--- that is only for a plan.
function M.parts_to_record(parts)
  if not few then return parts end
  seen = parts
  return math.min(parts, few)
end

local function tag(list, kind)
  for _, entry in ipairs(list) do compile.kind(entry.tensor, kind) end
end

-- Makes model, optimizer and step, and records a step; what it tells of these goes into `out`.
local function record(build, rows, context, out)
  local nn = require "nn"
  local model, optim, step = build()
  local kept, state = {}, 0
  for kind, list in pairs {weights = model:state(), optimizer = optim:state()} do
    tag(list, kind)
    for _, entry in ipairs(list) do
      kept[#kept + 1] = entry.tensor
      state = state + entry.tensor:bytes()
    end
  end
  out.parameters, out.state = model:count(), state
  out.flops_per_token = model.flops_per_token and model:flops_per_token(context)
  local shape, options = {rows, context}, {dtype = "i32", axes = "batch,time"}
  local ids, targets = nn.zeros(shape, options), nn.zeros(shape, options)
  kept[#kept + 1], kept[#kept + 2] = ids, targets
  compile.step_begins()
  grad.on_backward(function(results) tag(results, "activations") end, function()
    local results = {step(ids, targets)}
    for i = 1, table.maxn(results) do kept[#kept + 1] = results[i] end
  end)
  for _, p in ipairs(model:state()) do
    if p.tensor.grad then compile.kind(p.tensor.grad, "gradients") end
  end
  return kept
end

local function simulated(build, rows, context, measured, parts)
  local out, before = {}, few
  few, seen = parts, 1
  local ok, plan = lib.protected(compile.simulated, function()
    return record(build, rows, context, out)
  end, measured)
  few = before
  if not ok then error(plan, 0) end
  for name, value in pairs(out) do plan[name] = value end
  plan.parts = seen
  return plan
end

--- step(build, rows, context, measured) -> what compile.simulated() tells of a step on so many
--- sequences, and `parameters`, `flops_per_token` (where the model says), `state` (bytes of weights
--- and optimizer state), `parts` (of nn.accumulate). build() makes and returns the model, the
--- optimizer and the step.
function M.step(build, rows, context, measured)
  -- Parts of a batch that are recorded: more than are worked on at once; others are like the last.
  local enough = require("nn").workers() + 4
  lib.check(lib.C.nn_idle())               -- or the workers, waiting for tasks, would be in the way
  local plan = simulated(build, rows, context, measured, enough)
  local more = plan.parts - enough
  if more <= 0 then return plan end
  local half = math.floor(enough / 2)
  local fewer = simulated(build, rows, context, measured and "known", half)
  for _, name in ipairs {"tasks", "flops", "seconds", "busy"} do
    plan[name] = plan[name] + more * (plan[name] - fewer[name]) / (enough - half)
  end
  return plan
end

local function memory_there()
  local nn = require "nn"
  if nn.memory().budget == 0 then nn.memory_budget(0) end
  return nn.memory().budget
end

--- plan(build, loader, measured) -> step() for the loader's batches, and `there`, the bytes that
--- tensors may take.
function M.plan(build, loader, measured)
  local plan = M.step(build, loader.rows, loader.context, measured)
  plan.there = memory_there()
  return plan
end

--- largest_batch(needs, batch, there, seconds) -> the largest batch with needs(batch) <= there, 0
--- for none, and what it needs; nil where the search took longer than that and only shows that as
--- many fit. needs() grows nearly linearly, which keeps the number of its calls small.
function M.largest_batch(needs, batch, there, seconds)
  local nn = require "nn"
  local deadline = nn.now() + seconds
  local fits, bytes, slope = 0, 0, nil         -- known to fit, with so many bytes
  local fails, too_much = math.huge, nil       -- known not to
  local try, gap, bisect = batch, 1, false
  while fails - fits > 1 do
    if nn.now() > deadline then return fits, nil end
    local need = needs(try)
    if need > there then
      fails, too_much = try, need
    else
      if need > bytes and fits > 0 then slope = (need - bytes) / (try - fits) end
      fits, bytes = try, need
    end
    if fails == math.huge then
      local line = slope and fits + (there - bytes) / slope or 2 * fits
      try, gap = math.min(math.max(line, fits + gap), 64 * fits), 2 * gap
    else
      local line = fits + (there - bytes) / (too_much - bytes) * (fails - fits)
      try, bisect = bisect and (fits + fails) / 2 or line, not bisect
    end
    try = math.max(fits + 1, math.min(math.floor(try), fails - 1))
  end
  return fits, bytes
end

local function table_of(rows)
  local lines = {}
  for _, row in ipairs(rows) do
    lines[#lines + 1] = ("%-15s %s"):format(row[1], row[2])
  end
  return lines
end

local function memory_rows(plan, rows)
  rows[#rows + 1] = {"memory", units.bytes(plan.peak) .. " of RAM at most, of which then"}
  for _, kind in ipairs {"weights", "gradients", "optimizer", "activations", "other"} do
    local name = kind == "other" and "workspace" or kind
    rows[#rows + 1] = {"  " .. name, ("%9s"):format(units.bytes(plan.kinds[kind]))}
  end
  rows[#rows + 1] = {"there are", ("%s: it %s"):format(units.bytes(plan.there),
    plan.peak <= plan.there and "fits" or "does not fit")}
end

local function batch_text(build, loader, plan)
  local parts = loader.rows / loader.batch_size
  if plan.state > plan.there then
    return ("none fits: parameters and moments alone take %s"):format(units.bytes(plan.state))
  end
  local function needs(batch)
    return M.step(build, batch * parts, loader.context, false).peak
  end
  local batch, bytes = M.largest_batch(needs, loader.batch_size, plan.there, SEARCH_SECONDS)
  if batch == 0 then return "none fits" end
  if not bytes then return ("data.batch=%d fits; larger ones were not tried"):format(batch) end
  return ("data.batch=%d, which needs %s"):format(batch, units.bytes(bytes))
end

local function time_text(plan, tokens)
  local s = plan.seconds
  local text = s < 1 and ("%.3g ms"):format(s * 1e3) or s < 60 and ("%.3g s"):format(s)
    or units.duration(s)
  return ("about %s a step, %s tokens/s; %d CPU workers, %.0f %% busy"):format(text,
    tokens / s < 1 and ("%.2g"):format(tokens / s) or units.number(tokens / s), plan.workers,
    math.min(100, 100 * plan.busy / plan.workers / s))
end

--- report(build, loader) -> lines for people: what a step would take on this machine.
function M.report(build, loader)
  local nn = require "nn"
  local plan, tokens = M.plan(build, loader, true), loader:batch_tokens()
  local flops = plan.flops_per_token and plan.flops_per_token * tokens or plan.flops
  local rows = {
    {"parameters", units.number(plan.parameters)},
    {"FLOPs", ("%.3g a token, %.3g a step of %s tokens"):format(flops / tokens, flops,
                                                                units.number(tokens))},
    {"tasks", units.number(plan.tasks) .. " a step"},
  }
  memory_rows(plan, rows)
  rows[#rows + 1] = {"largest batch", batch_text(build, loader, plan)}
  rows[#rows + 1] = {"time", time_text(plan, tokens)}
  local _, gpus = nn.workers()
  if gpus > 0 then
    rows[#rows + 1] = {"GPUs", ("%d, not in these numbers: tiles pass through their memory, which "
      .. "does not lower what RAM holds; time and GPU memory are not estimated"):format(gpus)}
  end
  return table_of(rows)
end

return M
