-- Plans of training steps (see step.lua), with only some of their microbatches recorded.
local accumulate = require "nn.core.accumulate"
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local step_plan = require "nn.plan.step"

local M = {}

-- The plan of a step with at most `limit` microbatches recorded, and the number of its
-- microbatches.
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

--- step(build, rows, context, measured) -> the plan of step_plan.step() for `rows` sequences, with
--- `flops_per_token` if the model has it. build() creates and returns the model, the optimizer and
--- the step.
function M.step(build, rows, context, measured)
  -- Record more microbatches than are in memory at once, and extrapolate the others from the last.
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

--- plan(build, loader, measured) -> step() for the loader's batches, with `available`, the memory
--- budget or, for a measured plan, the RAM of the described machine.
function M.plan(build, loader, measured)
  local plan = M.step(build, loader.rows, loader.context, measured)
  plan.available = step_plan.available_memory(measured)
  return plan
end

--- report(build, loader) -> lines of text: the cost of a step on this machine.
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
