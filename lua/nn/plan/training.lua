-- Plans of training steps (see step.lua), with only some of their microbatches recorded, and the
-- check at the start of a training.
local accumulate = require "nn.core.accumulate"
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local step_plan = require "nn.plan.step"
local units = require "nn.base.units"

local M = {}
local INPUT_BYTES = 8            -- of a token: its id and its target, i32
local TASK_BYTES = 5500          -- of process memory for a recorded task, about
local MANY_TILES = 20000         -- parameters of more tiles take long to record

-- The plan of a step with at most `limit` microbatches recorded, and the number of its
-- microbatches. known: the number of microbatches, or nil; if given, rows are created only for the
-- recorded ones. inputs(rows) -> the two tensors of a batch.
local function simulated(build, rows, context, measured, limit, known, inputs)
  local flops_per_token
  local some = known and known > limit and rows / known * limit or rows
  local plan, microbatches = accumulate.limited(limit, some < rows, step_plan.step, function()
    local model, optim, step = build()
    local ids, targets = inputs(some)
    local answer = #targets.shape == 2 and targets:dim(2) or nil
    flops_per_token = model.flops_per_token and model:flops_per_token(context, answer)
    return function() return step(ids, targets) end,
           {weights = model, optimizer = optim, other = {ids, targets}}
  end, measured)
  if some < rows and microbatches ~= known then
    return simulated(build, rows, context, measured, limit, nil, inputs)
  end
  local missing = (rows - some) * context * INPUT_BYTES
  plan.kinds.other = plan.kinds.other + missing
  plan.peak, plan.lasting = plan.peak + missing, plan.lasting + missing
  plan.flops_per_token = flops_per_token
  return plan, microbatches
end

-- The ids and targets of `rows` sequences.
local function sequences(rows, context)
  local shape, options = {rows, context}, {dtype = "i32", axes = "batch,time"}
  return creation.zeros(shape, options), creation.zeros(shape, options)
end

--- step(build, rows, context, measured, known, inputs) -> the plan of step_plan.step() for `rows`
--- sequences, with `flops_per_token` if the model has it. build() creates and returns the model,
--- the optimizer and the step. known: the number of microbatches in the step, or nil. inputs(rows)
--- -> the two arguments of the step; by default ids and targets.
function M.step(build, rows, context, measured, known, inputs)
  inputs = inputs or function(some) return sequences(some, context) end
  -- Record more microbatches than are in memory at once, and extrapolate the others from the last.
  local enough = engine.workers() + 4
  local plan, microbatches = simulated(build, rows, context, measured, enough, known, inputs)
  local more = microbatches - enough
  if more <= 0 then return plan end
  local half = math.floor(enough / 2)
  local fewer = simulated(build, rows, context, measured and "known", half, known, inputs)
  local share = more / (enough - half)
  for _, name in ipairs {"tasks", "flops", "seconds", "busy"} do
    plan[name] = plan[name] + share * (plan[name] - fewer[name])
  end
  plan.tiers = batches.line(fewer.tiers, plan.tiers, share)
  plan.tasks = math.floor(plan.tasks + 0.5)
  return plan
end

-- The functions of step_plan.plans() for the steps of a loader.
local function planner(build, loader, available)
  local microbatches = loader.rows / loader.batch_size
  local function inputs(rows) return loader:inputs(rows) end
  return step_plan.plans(function(batch, measured)
    return M.step(build, batch * microbatches, loader.context, measured, microbatches, inputs)
  end, available)
end

-- Raises an error if the requirements, found by arithmetic, show that the step cannot fit into
-- `available` bytes. only_planned: raises it only if recording also takes long.
local function refuse_oversized(requirements, loader, available, only_planned)
  if not requirements then return end
  available = available + budget.memory().on_gpus
  local bytes = requirements.bytes + loader.rows * loader.context * INPUT_BYTES
  if bytes <= available or only_planned and requirements.tiles <= MANY_TILES then return end
  lib.fail("the training cannot fit: %s parameters in %s tiles and %s tokens a step, in "
           .. "microbatches of %s, need at least %s, %s are available; lower model.layers, "
           .. "model.embd, model.vocab, data.batch, data.accum or model.context",
           units.number(requirements.parameters), units.number(requirements.tiles),
           units.number(loader.rows * loader.context),
           units.number(loader.batch_size * loader.context), units.bytes(bytes),
           units.bytes(available))
end

-- Refuses a plan that needs more of the disk than there is. tiers: nil if all fits into RAM.
local function need_disk(tiers)
  local needed = tiers and (tiers.lower or tiers).disk or 0
  local room = needed > 0 and step_plan.disk_room() or 0
  if needed > room then
    lib.fail("the training cannot fit: it needs %s (%.0f bytes) on the disk, but %s has %s (%.0f "
             .. "bytes) available; free some space, choose another folder (memory.disk) or raise "
             .. "memory.ram", units.bytes(needed), needed, budget.disk_folder, units.bytes(room),
             room)
  end
end

--- need_room(build, loader, requirements) -> the plan of a step, at the start of a training.
--- requirements: see run:plan. Errors: the step does not fit into the memory budget, with needed
--- and available bytes.
function M.need_room(build, loader, requirements)
  local available = step_plan.available_memory()
  local has_disk = budget.has_disk()
  if not has_disk then refuse_oversized(requirements, loader, available) end
  local plan = planner(build, loader, available)(loader.batch_size, budget.tiers ~= nil)
  if has_disk then                                    -- it exists, so the step fits into RAM
    need_disk(plan.tiers)
    if not budget.on_gpu() then plan.process = step_plan.process_bytes(plan.tiers) end
    return plan
  end
  available = step_plan.room(plan, available)
  if plan.peak > available then
    lib.fail("the training cannot fit: a step needs %s (%.0f bytes: %s of parameters and moments, "
             .. "%s of gradients and activations), %s (%.0f bytes) are available; lower data.batch "
             .. "(and raise data.accum), model.context or model.layers%s", units.bytes(plan.peak),
             plan.peak, units.bytes(plan.state), units.bytes(plan.peak - plan.state),
             units.bytes(available), available,
             budget.activation_choice == "keep" and ", or set memory.activations=auto" or "")
  end
  if plan.peak + plan.tasks * TASK_BYTES > available then
    lib.fail("the training cannot fit: the %s tasks of a step take about %s to record, besides %s "
             .. "for its tensors; %s are available; lower data.accum", units.number(plan.tasks),
             units.bytes(plan.tasks * TASK_BYTES), units.bytes(plan.peak), units.bytes(available))
  end
  return plan
end

--- report(build, loader, requirements) -> lines of text: the cost of a step on this machine.
function M.report(build, loader, requirements)
  local available = step_plan.available_memory(true)
  refuse_oversized(requirements, loader, available, true)
  local of, needs, spared = planner(build, loader, available)
  local plan, tokens = of(loader.batch_size, true), loader:batch_tokens()
  plan.available = step_plan.room(plan, available)
  return step_plan.report(plan, {
    tokens = tokens, flops = plan.flops_per_token and plan.flops_per_token * tokens,
    batch = loader.batch_size, name = "data.batch",
    needs = needs, spared = spared})
end

return M
