-- What a training run would take: plans of its steps (step.lua), of which not all microbatches are
-- recorded.
local accumulate = require "nn.core.accumulate"
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local step_plan = require "nn.plan.step"

local M = {}

-- The plan of a step that records at most `limit` microbatches, and how many it has.
local function simulated(build, rows, context, measured, limit)
  local flops_per_token
  local plan, microbatches = accumulate.limited(limit, step_plan.step, function()
    local model, optim, step = build()
    flops_per_token = model.flops_per_token and model:flops_per_token(context)
    local shape, options = {rows, context}, {dtype = "i32", axes = "batch,time"}
    local ids, targets = creation.zeros(shape, options), creation.zeros(shape, options)
    return function() return step(ids, targets) end,
           {weights = model, optimizer = optim, other = {ids, targets}}
  end, measured)
  plan.flops_per_token = flops_per_token
  return plan, microbatches
end

--- step(build, rows, context, measured) -> what step_plan.step() tells of a step on so many
--- sequences, and `flops_per_token` (where the model says). build() makes and returns the model,
--- the optimizer and the step.
function M.step(build, rows, context, measured)
  -- Microbatches that are recorded: more than are worked on at once; others are like the last.
  local enough = engine.workers() + 4
  local plan, microbatches = simulated(build, rows, context, measured, enough)
  local more = microbatches - enough
  if more <= 0 then return plan end
  local half = math.floor(enough / 2)
  local fewer = simulated(build, rows, context, measured and "known", half)
  for _, name in ipairs {"tasks", "flops", "seconds", "busy"} do
    plan[name] = plan[name] + more * (plan[name] - fewer[name]) / (enough - half)
  end
  return plan
end

--- plan(build, loader, measured) -> step() for the loader's batches, and `available`, the bytes
--- that tensors may take: here or, for a measured plan, on the described machine.
function M.plan(build, loader, measured)
  local plan = M.step(build, loader.rows, loader.context, measured)
  plan.available = step_plan.available_memory(measured)
  return plan
end

--- report(build, loader) -> lines for people: what a step would take on this machine.
function M.report(build, loader)
  local plan, tokens = M.plan(build, loader, true), loader:batch_tokens()
  local microbatches = loader.rows / loader.batch_size
  return step_plan.report(plan, {
    tokens = tokens, flops = plan.flops_per_token and plan.flops_per_token * tokens,
    batch = loader.batch_size, name = "data.batch",
    needs = function(batch)
      return M.step(build, batch * microbatches, loader.context, false).peak
    end})
end

return M
