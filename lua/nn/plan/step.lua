-- Plans of any step: the step is recorded and simulated on imaginary workers; nothing is computed
-- and no tensor is allocated. training.lua and inference.lua build on this.
local advice = require "nn.plan.advice"
local arguments = require "nn.base.arguments"
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local engine = require "nn.base.engine"
local kinds = require "nn.core.kind"
local tape = require "nn.core.tape"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local progress = require "nn.plan.progress"
local rank_rows = require "nn.plan.rank_rows"
local show = require "nn.core.show"
local tensor = require "nn.core.tensor"
local tier_rows = require "nn.plan.tier_rows"
local units = require "nn.base.units"

local M = {}
local SEARCH_SECONDS = 4         -- for the largest batch
local SHARE_OF_GPU = 0.9         -- of its memory, for tensors
local names = arguments.names "weights optimizer cache other"

-- The tensors of a module or an optimizer, or of a list of tensors.
local function tensors_of(what)
  local list = {}
  for i, entry in ipairs(what.state and what:state() or what) do
    list[i] = tensor.is_tensor(entry) and entry or entry.tensor
  end
  return list
end

local function tag(list, count, kind)
  for i = 1, count do
    if list[i] then kinds.set(list[i], kind) end
  end
end

-- Calls step() and adds its results to `list`. Activations are the tensors that backward() finds on
-- the tape; in a step without backward(), all results of ops. note(list, count): called with the
-- results of each op.
local function watch_step(step, list, note)
  local seen, backward = {}, false
  tape.watch(function(results, count, on_tape)
    progress.tick "operations of the step"
    note(results, count)
    backward = backward or on_tape
    if on_tape then tag(results, count, "activations") end
    for i = 1, backward and 0 or count do seen[#seen + 1] = results[i] end
  end, function()
    local results = {step()}
    for i = 1, table.maxn(results) do list[#list + 1] = results[i] end
  end)
  if not backward then tag(seen, #seen, "activations") end
end

-- Calls build() and its step while recording; writes the number of parameters, the bytes of state
-- and those of the largest tile to `out`. Returns the results of the step.
local function record(build, out)
  local step, lasting = module.watch(function() progress.tick "parameters" end, build)
  arguments.need(type(step) == "function" or type(step) == "table", "plan_step",
                 "the first result of build", step, "the function of a step is needed")
  local lasting_tensors, results, lists = {}, {}, {}
  out.state, out.largest_tile = 0, 0
  local function note(list, count)
    for i = 1, count do
      if list[i] then out.largest_tile = math.max(out.largest_tile, advice.tile_bytes(list[i])) end
    end
  end
  for kind, what in pairs(arguments.options("plan_step", lasting, names)) do
    lists[kind] = tensors_of(what)
    note(lists[kind], #lists[kind])
    for _, x in ipairs(lists[kind]) do
      lasting_tensors[#lasting_tensors + 1] = x
      local counts = kind == "weights" or kind == "optimizer"
      out.state = out.state + (counts and x:bytes() or 0)
    end
  end
  local weights = lists.weights or {}
  out.parameters = 0
  for _, x in ipairs(weights) do out.parameters = out.parameters + x:count() end
  compile.step_begins(lasting_tensors)
  watch_step(step, results, note)
  for kind, list in pairs(lists) do tag(list, #list, kind) end
  for _, x in ipairs(weights) do
    if x.grad then kinds.set(x.grad, "gradients") end
  end
  progress.recorded()
  return results
end

--- load() -> the load average of the last minute, and whether it makes rates measured now too low.
function M.load()
  local file = io.open "/proc/loadavg"
  local load = file and tonumber(file:read "*l":match "^[%d.]+") or 0
  if file then file:close() end
  return load, load >= 0.5 * engine.workers() + 0.5
end

--- step(build, measured, alone) -> the plan of compile.simulated() for a step, with `parameters`,
--- `state` (bytes of weights and optimizer state on this rank), `largest_tile` (bytes), `recorded`
--- (the number of recorded tasks), `took` (seconds), `load` and `disturbed` (of load()). build()
--- and alone are as in nn.plan_step.
function M.step(build, measured, alone)
  lib.check(lib.C.nn_idle())               -- idle workers would slow down the measurements
  local out, start = {}, engine.now()
  out.load, out.disturbed = M.load()
  local plan = progress.during(compile.simulated, function() return record(build, out) end,
                               measured, alone)
  for name, value in pairs(out) do plan[name] = value end
  if cluster.planned() > 1 then plan.state = plan.kinds.weights + plan.kinds.optimizer end
  plan.took = engine.now() - start
  return plan
end

--- gpu_costs(build) -> the results of compile.gpu_costs() for the step of build(), as in
--- nn.plan_step.
function M.gpu_costs(build)
  return progress.during(compile.gpu_costs, function() return record(build, {}) end)
end

--- available_memory(planned) -> the memory budget in bytes or, with `planned` and where nn.machine
--- describes a machine, the RAM of that. Errors: the limits of the process leave no memory.
function M.available_memory(planned)
  local machine = engine.machine()
  if planned and machine.described then return machine.ram end
  if budget.memory().budget == 0 then budget.memory_budget(0) end
  return budget.memory().budget
end

--- room(plan, available) -> the bytes that the peak of a plan may have. Temporaries that fit on a
--- GPU beside the parameters and moments take no RAM.
function M.room(plan, available)
  if plan.state > available then return available end
  return available + math.max(0, budget.memory().on_gpus - plan.state)
end

--- most(plan) -> the peak in bytes of the rank that needs the most.
function M.most(plan)
  local most = plan.peak
  for _, rank in ipairs(plan.ranks) do most = math.max(most, rank.peak) end
  return most
end

--- exceeded_gpu(plan) -> the bytes for nn.memory_tiers{gpu=} with which a step runs that exceeds
--- the only GPU of this process, and a text; nil if it does not, or if there are tiers.
function M.exceeded_gpu(plan)
  local room = plan.on_gpus and plan.workers == 1 and SHARE_OF_GPU * engine.machine().gpu_memory
  if budget.tiers or not room or room <= 0 or M.most(plan) <= room then return nil end
  local gpu = math.floor(SHARE_OF_GPU * room)
  return gpu, ("memory.gpu=%.0fMB: a step needs %s, and the GPU has %s for tensors"):format(
    gpu / 1e6, units.bytes(M.most(plan)), units.bytes(room))
end

local function memory_rows(plan, rows)
  rows[#rows + 1] = {"memory", ("%s%s at the peak%s:"):format(units.bytes(plan.peak),
    plan.on_gpus and "" or " of RAM", #plan.ranks > 1 and " of rank 0" or "")}
  for _, kind in ipairs {"weights", "gradients", "optimizer", "cache", "activations", "other"} do
    if plan.kinds[kind] > 0 then
      rows[#rows + 1] = {"  " .. tier_rows.shown(kind),
                         ("%9s"):format(units.bytes(plan.kinds[kind]))}
    end
  end
  local fits = M.most(plan) <= plan.available
  rows[#rows + 1] = {"available", ("%s: it %s"):format(units.bytes(plan.available),
                                                       fits and "fits" or "does not fit")}
  local _, advised = M.exceeded_gpu(plan)
  if advised then rows[#rows + 1] = {"", "set " .. advised} end
end

-- The tiers of a plan that moves tiles; nil if all tensors fit into the upper tier.
local function moving_tiers(plan)
  local tiers = plan.tiers
  local fits = tiers and tiers.loaded.total + tiers.stored.total == 0
    and plan.peak <= plan.available
  return not fits and tiers or nil
end

--- seconds(plan) -> the predicted time of a step, with its transfers. plan: as for report().
function M.seconds(plan)
  local tiers = moving_tiers(plan)
  return tiers and tiers.seconds or plan.seconds
end

--- plans(record_batch, available) -> plan(n, measured), the plan of a batch of n; needs(n), the
--- fewest bytes with which such a batch runs; spared(n), the same with recomputation even if the
--- settings forbid it. record_batch: as for batches.planner().
function M.plans(record_batch, available)
  local choice = budget.activation_choice          -- also of plans that are made later
  local function planner(with)
    local plan = batches.planner(record_batch)
    return function(...) return budget.with_activations(with, plan, ...) end
  end
  local function is_auto() return choice == "auto" and not budget.tiers end
  local of, recomputed = planner(choice), planner "recompute"
  return function(n, measured)
    local plan = of(n, measured)
    -- A line through smaller batches holds if none of them needs recomputation, or if all of them
    -- recompute.
    local too_large = plan.recomputed > 0 or plan.peak > M.room(plan, available)
    if is_auto() and plan.extrapolated and cluster.any(too_large) then
      return recomputed(n, measured)
    end
    return plan
  end, function(n) return M.most((is_auto() and recomputed or of)(n, false)) end,
  function(n) return M.most(recomputed(n, false)) end
end

local function largest_text(plan, o)
  if plan.state > plan.available then
    return ("none fits: the parameters%s alone take %s"):format(
      plan.kinds.optimizer > 0 and " and moments" or "", units.bytes(plan.state))
  end
  local function needs(n)
    local most = M.most(plan)
    return n == o.batch and most <= plan.available and most or o.needs(n)
  end
  local batch, bytes, estimate = batches.largest(needs, o.batch, plan.available, SEARCH_SECONDS,
                                                 plan.state, plan.took)
  local rest = batch % (o.unit or 1)
  batch = batch - rest
  if bytes and batch > 0 and rest > 0 then bytes = needs(batch) end
  if batch == 0 then local least = o.unit or 1
    return ("none fits: %s=%d takes %s"):format(o.name, least, units.bytes(o.needs(least)))
  end
  if not bytes then
    if estimate then estimate = estimate - estimate % (o.unit or 1) end
    return ("%s=%d fits; %s"):format(o.name, batch, estimate
      and ("the largest is about %d"):format(estimate) or "larger ones are not planned")
  end
  return ("%s=%d, which needs %s"):format(o.name, batch, units.bytes(bytes))
end

--- time_text(seconds) -> "12.3 ms".
function M.time_text(s)
  return s < 1 and ("%.3g ms"):format(s * 1e3) or s < 60 and ("%.3g s"):format(s)
    or units.duration(s)
end

--- rate_text(tokens, seconds) -> "12.3k tokens/s".
function M.rate_text(tokens, s)
  local rate = tokens / s
  return (rate < 1 and ("%.2g"):format(rate) or units.number(rate)) .. " tokens/s"
end

--- report(plan, o) -> lines of text. plan: of step(), with `available`. o: tokens, tokens per step;
--- flops, FLOPs per step (default: the recorded ones); steps, the number of steps whose time is
--- stated (default: 0); batch, the planned batch; name, the setting for it; unit, of which it is a
--- multiple (default: 1); needs(batch), the bytes of another batch; spared(batch), of plans(), or
--- nil; rows, further rows {{name, text}, ...}.
function M.report(plan, o)
  local flops, tokens = o.flops or plan.flops, units.number(o.tokens)
  local rows = {
    {"parameters", units.number(plan.parameters)},
    {"FLOPs", ("%.3g a token, %.3g a step of %s token%s"):format(flops / o.tokens, flops, tokens,
                                                                 o.tokens == 1 and "" or "s")},
    {"tasks", units.number(plan.tasks) .. " a step"},
  }
  local tiers = moving_tiers(plan)
  if tiers then
    tier_rows.rows(tiers, rows)
  else
    memory_rows(plan, rows)
    -- With tiers, larger batches run too.
    if not plan.tiers then rows[#rows + 1] = {"largest batch", largest_text(plan, o)} end
    if M.most(plan) > plan.available then
      rows[#rows + 1] = {"to make it fit", advice.changes(plan, o, M.most(plan))}
    end
  end
  if plan.recomputed > 0 then
    rows[#rows + 1] = {"recomputed", ("%s of activations, which takes %.0f %% of the computation")
      :format(units.bytes(plan.recomputed), 100 * plan.recomputing)}
  end
  local seconds = M.seconds(plan)
  local on_gpu = tiers and budget.on_gpu()
  local about = ("about %s a step, %s"):format(M.time_text(seconds), M.rate_text(o.tokens, seconds))
  rows[#rows + 1] = {"time", on_gpu and about or ("%s; %d %s%s%s, %.0f %% busy"):format(
    about, plan.workers, plan.on_gpus and "GPU" or "CPU worker", plan.workers == 1 and "" or "s",
    #plan.ranks > 1 and " of each rank" or "",
    math.min(100, 100 * plan.busy / plan.workers / seconds))}
  if plan.assumed_rates then
    rows[#rows + 1] = {"", "with the rates of an H100: describe gpu_gflops and gpu_bandwidth"}
  end
  rank_rows.add(plan, seconds, rows)
  if tiers then
    -- With enough memory, "auto" recomputes nothing.
    local spared = budget.activation_choice == "auto" and plan.recomputing or 0
    rows[#rows + 1] = {"", ("%.2f of the speed with enough memory"):format(
      (on_gpu and tiers.computing or plan.seconds) * (1 - spared) / seconds)}
  end
  if (o.steps or 0) > 0 then
    rows[#rows + 1] = {"", ("%s step%s about %s"):format(show.thousands(o.steps),
      o.steps == 1 and " takes" or "s take", units.rough_duration(o.steps * seconds))}
  end
  if plan.disturbed then
    rows[#rows + 1] = {"", ("the load of the last minute was %.1f: an idle machine may be faster")
      :format(plan.load)}
  end
  for _, row in ipairs(o.rows or {}) do rows[#rows + 1] = row end
  local lines = {}
  for i, row in ipairs(rows) do lines[i] = ("%-15s %s"):format(row[1], row[2]) end
  return lines
end

local options = arguments.names "batch tokens flops name alone"
local Plan = {__tostring = function(self)
  self.text = self.text or table.concat(M.report(self, self.asked), "\n")
  return self.text
end}

--- nn.plan_step(build, {batch=1, tokens=batch, flops, name="batch", alone=false}) -> plan
--- The cost of any step on this machine, without computing or allocating anything. build(batch)
--- creates the tensors of the step and returns step, {weights=, optimizer=, cache=, other=}. step()
--- runs one step and returns the tensors that remain in use; the table has the tensors that exist
--- before and after a step, each entry a module, an optimizer or a list of tensors. The plan prints
--- as the table of --plan, with the largest batch that fits. Fields: peak (bytes), kinds (bytes of
--- the peak by kind), available (the memory budget in bytes), tasks, flops, seconds, parameters;
--- with nn.memory_tiers also tiers: its seconds, and the bytes loaded.total and stored.total, are
--- those of a step with transfers. Options: tokens: tokens per step; flops: FLOPs per step, if not
--- the recorded ones; name: the setting for the batch; alone: each step ends before the next one is
--- submitted. For training with nn.run, use run:plan.
---     local plan = nn.plan_step(function(batch)
---       local layer, input = nn.Linear(1000, 1000), nn.zeros(batch, 1000)
---       return function() return nn.no_grad(layer, input):sum() end,
---              {weights = layer, other = {input}}
---     end, {batch = 64})
---     plan.parameters, plan.peak > 4004000  --> 1001000, true
function M.plan_step(build, given)
  arguments.callable("plan_step", build)
  local o = {}
  for name, value in pairs(arguments.options("plan_step", given, options)) do o[name] = value end
  o.batch = arguments.whole("plan_step", "batch", o.batch or 1)
  o.tokens, o.name = o.tokens or o.batch, o.name or "batch"
  local available = M.available_memory(true)
  local of, needs, spared = M.plans(function(batch, measured)
    return M.step(function() return build(batch) end, measured, o.alone)
  end, available)
  local plan = of(o.batch, true)
  o.needs, o.spared = needs, spared
  plan.available, plan.asked = M.room(plan, available), o
  return setmetatable(plan, Plan)
end

return M
