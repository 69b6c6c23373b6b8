-- What a model in use would take: plans for the recipes that evaluate it and that generate text.
-- The model is known by its settings; its weights are not read.
local creation = require "nn.core.creation"
local generate = require "nn.models.generate"
local lib = require "nn.base.capi"
local step_plan = require "nn.plan.step"
local units = require "nn.base.units"

local M = {}

local function new_model(config) return require "models.gpt2"(config) end

local function ids_of(rows, time)
  return creation.zeros({rows, time}, {dtype = "i32", axes = "batch,time"})
end

-- FLOPs of a token that `time` tokens are seen with; forward is a third of all.
local function forward_flops(config, time)
  return require("models.gpt2").flops_per_token({config = config}, time) / 3
end

--- evaluation(config, batch) -> the plan of one batch of windows in gpt2_eval.lua; prints as a
--- table.
function M.evaluation(config, batch)
  local context, tokens = config.context, batch * config.context
  return step_plan.plan_step(function(rows)
    local model, ids, targets = new_model(config), ids_of(rows, context), ids_of(rows, context)
    return function() return generate.as_it_is(model, ids, targets) end,
           {weights = model, other = {ids, targets}}
  end, {batch = batch, tokens = tokens, alone = true,
      flops = forward_flops(config, context) * tokens})
end

-- A step that reads `time` tokens of each row into the cache: prompts from their beginning
-- (`whole`), or the newest token. `logits` are what the script reads.
local function reading(config, rows, time, whole)
  local model = new_model(config)
  local caches = model:caches(rows)
  local ids, start = ids_of(rows, time), creation.zeros({rows}, {dtype = "i32"})
  local last = whole and creation.zeros({rows}, {dtype = "i32"}) or nil
  local logits = creation.zeros({rows, config.vocab}, {dtype = config.dtype, axes = "batch,vocab"})
  local function step() logits:copy_(model:next(ids, caches, start, last)) end
  return function() generate.as_it_is(step) end,
         {weights = model, cache = caches, other = {ids, start, logits, last}}
end

--- generation(config, prompts, tokens, samples) -> the plan of generating so many tokens for
--- `prompts`, lists of ids of which `samples` in a row are the same: peak, kinds and there as in
--- nn.plan_step; seconds, tasks and flops of a token for each prompt, `reading` the plan of reading
--- the prompts. Prints as a table.
function M.generation(config, prompts, tokens, samples)
  local longest, texts = 0, #prompts / samples
  for _, ids in ipairs(prompts) do longest = math.max(longest, #ids) end
  if longest > config.context then
    lib.fail("plan: a prompt of %d tokens is longer than the model's context of %d; each token "
             .. "would read the last %d again, which is not planned", longest, config.context,
             config.context)
  end
  local function of(rows, time, whole, measured)
    return step_plan.step(function() return reading(config, rows, time, whole) end, measured, true)
  end
  local plan, first = of(#prompts, 1, false, true), of(#prompts, longest, true, true)
  if first.peak > plan.peak then plan.peak, plan.kinds = first.peak, first.kinds end
  plan.reading, plan.there = first, step_plan.memory_there()
  local cached = math.min(tokens, config.context - longest + 1)     -- the first is the prompts'
  local all = first.seconds + (cached - 1) * plan.seconds
  local rows = {{"prompts", ("%s, about %s to read"):format(
    units.count(longest * #prompts, "token"), step_plan.time_text(first.seconds))},
    {"text", ("about %s for %s of each sequence, without drawing them"):format(
      step_plan.time_text(all), units.count(cached, "token"))}}
  if cached < tokens then
    rows[#rows + 1] = {"beyond", ("%d tokens pass the context of %d; each reads the last %d again, "
      .. "which is not planned"):format(tokens - cached, config.context, config.context)}
  end
  return setmetatable(plan, {__tostring = function()
    return table.concat(step_plan.report(plan, {
      tokens = #prompts, batch = samples, name = "samples", rows = rows,
      flops = forward_flops(config, longest + cached / 2) * #prompts,
      needs = function(n)
        return math.max(of(n * texts, 1, false, false).peak, of(n * texts, longest, true).peak)
      end}), "\n")
  end})
end

return M
