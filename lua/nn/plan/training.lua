-- Plans of training steps (see step.lua), and the check at the start of a training.
local accumulate = require "nn.core.accumulate"
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local engine = require "nn.base.engine"
local creation = require "nn.core.creation"
local lib = require "nn.base.capi"
local advice = require "nn.plan.advice"
local rank_rows = require "nn.plan.rank_rows"
local step_plan = require "nn.plan.step"
local tier_rows = require "nn.plan.tier_rows"
local units = require "nn.base.units"

local M = {}
local INPUT_BYTES = 16           -- of a token: its id and its target, i32, and a run's copies
local TASK_BYTES = 5500          -- of process memory for a recorded task, about
local MOST_RECORDED = 512        -- microbatches whose rows are recorded
local MANY_TILES = 20000         -- parameters of more tiles take long to record
local RELEVANT = 0.1             -- the least share of missing memory that a setting should save

-- The ids and targets of `rows` sequences.
local function sequences(rows, context)
  local shape, options = {rows, context}, {dtype = "i32", axes = "batch,time"}
  return creation.zeros(shape, options), creation.zeros(shape, options)
end

-- The plan of a step with `rows` sequences and at most so many microbatches.
local function planned(build, rows, context, measured, inputs, most)
  local flops_per_token
  local plan = accumulate.limited(most, step_plan.step, function()
    local model, optim, step = build()
    local ids, targets = inputs(rows, context)
    local answer = #targets.shape == 2 and targets:dim(2) or nil
    flops_per_token = model.flops_per_token and model:flops_per_token(context, answer)
    return function() return step(compile.argument(ids), compile.argument(targets)) end,
           {weights = model, optimizer = optim, other = {ids, targets}}
  end, measured)
  plan.flops_per_token = flops_per_token
  return plan
end

--- step(build, rows, context, measured, inputs, microbatches) -> the plan of step_plan.step() for
--- `rows` sequences, with `flops_per_token` if the model has it. build() creates and returns the
--- model, the optimizer and the step. inputs(rows) -> the two arguments of the step; by default ids
--- and targets. microbatches: of the step; if they are very many, not all of their rows are
--- recorded, and the plan is extrapolated.
function M.step(build, rows, context, measured, inputs, microbatches)
  inputs = inputs or sequences
  local count = accumulate.count(microbatches or 1)
  local _, most = accumulate.count(MOST_RECORDED)
  local _, half = accumulate.count(MOST_RECORDED / 2)
  if count <= most or most == half then
    return planned(build, rows, context, measured, inputs, math.huge)
  end
  local each = rows / count
  local plan = planned(build, most * each, context, measured, inputs, most)
  local fewer = planned(build, half * each, context, measured and "known", inputs, half)
  local share, peaks = (count - most) / (most - half), {}
  for i, rank in ipairs(plan.ranks) do peaks[i] = rank.peak end
  for _, name in ipairs {"tasks", "recorded", "flops", "seconds", "busy", "tiers", "ranks"} do
    plan[name] = batches.line(fewer[name], plan[name], share)
  end
  local missing = (rows - most * each) * context * INPUT_BYTES
  plan.kinds.other = plan.kinds.other + missing
  plan.peak, plan.lasting = plan.peak + missing, plan.lasting + missing
  for i, rank in ipairs(plan.ranks) do rank.peak = peaks[i] + missing end
  return plan
end

-- The functions of step_plan.plans() for the steps of a loader, and the number of which
-- data.batch must be a multiple, so that each shard has as many rows. They round others up.
local function planner(build, loader, available)
  local microbatches = loader.rows / loader.batch_size
  local unit = 1
  while unit * microbatches % accumulate.count(microbatches) > 0 do unit = unit + 1 end
  if loader.batch_size % unit > 0 then
    lib.fail("data.batch=%d does not divide evenly into %d shards; it must be a multiple of %d",
             loader.batch_size, cluster.shards(), unit)
  end
  local function inputs(rows) return loader:inputs(rows) end
  local plan, needs, spared = step_plan.plans(function(count, measured)
    return M.step(build, count * unit * microbatches, loader.context, measured, inputs,
                  microbatches)
  end, available)
  local function in_units(f)
    return function(batch, ...) return f(math.ceil(batch / unit), ...) end
  end
  return in_units(plan), in_units(needs), in_units(spared), unit
end

-- The settings to lower so that requirements fit. inputs: bytes of ids, targets and their copies.
local function settings_to_lower(requirements, loader, inputs, available)
  local list = {"model.layers", "model.embd", "model.vocab"}
  if requirements.state <= available then             -- else it fits with no batch
    local missing = requirements.bytes + inputs - available
    local function add(name, value, bytes)
      if bytes * (1 - 1 / value) >= RELEVANT * missing then table.insert(list, 1, name) end
    end
    local of_tokens = requirements.bytes - requirements.state + inputs
    add("model.context", loader.context, of_tokens)
    add("data.accum", loader.rows / loader.batch_size, inputs)
    add("data.batch", loader.batch_size, of_tokens)
  end
  return (table.concat(list, ", "):gsub(", ([%w.]+)$", " or %1"))
end

-- Raises an error if the requirements `all`, found by arithmetic for one rank, show that the step
-- cannot fit into `available` bytes. only_planned: raises it only if recording also takes long.
local function refuse_oversized(all, loader, available, only_planned)
  if not all then return end
  local requirements = setmetatable({}, {__index = all})
  requirements.state = all.state / cluster.planned()  -- each rank keeps at least so much
  requirements.bytes = all.bytes - all.state + requirements.state
  available = available + budget.memory().on_gpus
  local inputs = loader.rows * loader.context * INPUT_BYTES
  local bytes, many_tiles = requirements.bytes + inputs, requirements.tiles > MANY_TILES
  if bytes <= available or only_planned and not many_tiles then return end
  -- Inputs are not on the disk.
  local tile = many_tiles and math.huge or requirements.state / requirements.tiles
  local disk = advice.disk(available - inputs, tile)
  lib.fail("the training cannot fit: %s parameters in %s tiles and %s tokens a step, in "
           .. "microbatches of %s, need at least %s, %s are available; lower %s%s",
           units.number(requirements.parameters), units.number(requirements.tiles),
           units.number(loader.rows * loader.context),
           units.number(loader.batch_size * loader.context), units.bytes(bytes),
           units.bytes(available), settings_to_lower(requirements, loader, inputs, available),
           disk and "; or set " .. disk or "")
end

-- Refuses a plan that needs more of the disk than there is. tiers: nil if all fits into RAM.
local function need_disk(tiers)
  local needed = tiers and tiers.in_store or 0
  local room = budget.disk_room()
  if room > 0 and needed > room then
    lib.fail("the training cannot fit: it needs %s (%.0f bytes) on the disk, but %s has %s (%.0f "
             .. "bytes) available; free some space, choose another folder (memory.disk) or raise "
             .. "memory.ram", units.bytes(needed), needed, budget.disk_folders, units.bytes(room),
             room)
  end
end

-- The plan of a step. One that exceeds the memory of a GPU gets tiers, as if memory.gpu were set,
-- and is planned again; say(text) then tells so. trains: the GPU must exist, not only be described.
-- Every rank calls it; all get tiers, or none.
local function with_gpu_memory(plan_step, trains, say)
  local plan, gpu, text = cluster.plan_together(plan_step), nil, nil
  local exists = select(2, engine.workers()) > 0
  if exists or not trains then gpu, text = step_plan.exceeded_gpu(plan) end
  local all = cluster.several() and cluster.gather("the memory of GPUs", tostring(gpu or 0)) or {}
  for _, other in ipairs(all) do
    if not gpu and not budget.tiers and other ~= "0" then
      gpu, text = tonumber(other), "memory.gpu, as another rank needs it"
    end
  end
  if not gpu then return plan end
  say(text .. "; the rest is in RAM")
  budget.memory_tiers {gpu = gpu}
  return cluster.plan_together(plan_step)
end

--- need_room(build, loader, requirements, say) -> the plan of a step, at the start of a training.
--- Each of several ranks plans its part. requirements: see run:plan. say(text): called with what
--- was decided. Errors: the step does not fit into the memory budget, with needed and available
--- bytes.
function M.need_room(build, loader, requirements, say)
  local available = step_plan.available_memory()
  local has_disk = budget.has_disk()
  cluster.measure_link()
  if not has_disk then refuse_oversized(requirements, loader, available) end
  local of, needs, spared = planner(build, loader, available)
  local plan = cluster.plan_own_part(with_gpu_memory, function()
    return of(loader.batch_size, budget.tiers ~= nil)
  end, true, say)
  if has_disk then                                    -- it exists, so the step fits into RAM
    need_disk(plan.tiers)
    if not budget.on_gpu() then plan.process = tier_rows.process_bytes(plan.tiers) end
    return plan
  end
  available = step_plan.room(plan, available)
  plan.available = available
  if plan.peak > available then
    lib.fail("the training cannot fit: a step needs %s (%.0f bytes: %s of parameters and moments, "
             .. "%s of gradients and activations), %s (%.0f bytes) are available; to make it fit: "
             .. "%s", units.bytes(plan.peak), plan.peak, units.bytes(plan.state),
             units.bytes(plan.peak - plan.state), units.bytes(available), available,
             advice.training_changes(plan, {batch = loader.batch_size, name = "data.batch",
                                            needs = needs, spared = spared}))
  end
  if plan.peak + plan.recorded * TASK_BYTES > available then
    lib.fail("the training cannot fit: the %s tasks of a step take about %s to record, besides %s "
             .. "for its tensors; %s are available; lower %s", units.number(plan.recorded),
             units.bytes(plan.recorded * TASK_BYTES), units.bytes(plan.peak),
             units.bytes(available),
             loader.rows > loader.batch_size and "data.accum" or "data.batch or model.layers")
  end
  return plan
end

--- least_bytes(build, loader) -> the fewest bytes of tensors with which this rank's part of a step
--- runs without tiers. It waits for no other rank.
function M.least_bytes(build, loader)
  local _, needs = planner(build, loader, step_plan.available_memory())
  return cluster.plan_own_part(needs, loader.batch_size)
end

--- own_part(build, loader) -> the plan of this rank's part of a step, as for need_room(), but with
--- its own choices: it waits for no other rank. Errors: no plan works with the tiers.
function M.own_part(build, loader)
  local of = planner(build, loader, step_plan.available_memory())
  return cluster.plan_own_part(of, loader.batch_size, budget.tiers ~= nil)
end

--- report(build, loader, requirements, steps, say) -> lines of text: the cost of a step on this
--- machine, and the time of so many steps; say(text): as above. Every rank calls it; those besides
--- rank 0 return no lines.
function M.report(build, loader, requirements, steps, say)
  local available = step_plan.available_memory(true)
  cluster.measure_link()                              -- so all ranks also measure kernels at once
  if not budget.has_disk() then refuse_oversized(requirements, loader, available, true) end
  local of, needs, spared, unit = planner(build, loader, available)
  local plan = with_gpu_memory(function() return of(loader.batch_size, true) end, false, say)
  local tokens = loader:batch_tokens()
  plan.available = step_plan.room(plan, available)
  rank_rows.share(plan)
  if not cluster.is_first() then return {} end
  return step_plan.report(plan, {
    tokens = tokens, steps = steps, flops = plan.flops_per_token and plan.flops_per_token * tokens,
    batch = loader.batch_size, unit = unit, name = "data.batch",
    needs = needs, spared = spared})
end

return M
