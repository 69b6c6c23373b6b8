-- Plans of inference, for the recipes that evaluate a model and generate text. A plan uses the
-- settings of the model; its weights are not read.
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local creation = require "nn.core.creation"
local generate = require "nn.models.generate"
local lib = require "nn.base.capi"
local step_plan = require "nn.plan.step"
local units = require "nn.base.units"

local M = {}
local FEW = 64                   -- windows or sequences whose memory is not checked

-- A new model with the settings of the given one, which may be an outline without parameters.
local function like(model) return getmetatable(model)(model.config) end

local function ids_of(rows, time)
  return creation.zeros({rows, time}, {dtype = "i32", axes = "batch,time"})
end

-- Forward FLOPs, a third of the total, of `tokens` tokens that attend to `time` tokens; nil if
-- unknown.
local function forward_flops(model, time, tokens)
  return model.flops_per_token and model:flops_per_token(time) / 3 * tokens
end

local function build_evaluation(model, rows)
  local context = model.config.context
  local own, ids, targets = like(model), ids_of(rows, context), ids_of(rows, context)
  return function() return generate.eval_mode(own, ids, targets) end,
         {weights = own, other = {ids, targets}}
end

--- evaluation(model, batch) -> the plan of one batch of windows in gpt2_eval.lua; prints as a
--- table. `model`: a model or its outline.
function M.evaluation(model, batch)
  local context = model.config.context
  local tokens = batch * context
  return step_plan.plan_step(function(rows) return build_evaluation(model, rows) end,
                             {batch = batch, tokens = tokens, alone = true,
                              flops = forward_flops(model, context, tokens)})
end

-- A step that reads `time` tokens of each row into caches for `room` tokens: whole prompts
-- (`whole`), or the newest token. It copies the result to `logits`, the tensor that the script
-- reads.
local function reading(model, rows, room, time, whole)
  local own, c = like(model), model.config
  local caches = own:caches(rows, room)
  local ids, start = ids_of(rows, time), creation.zeros({rows}, {dtype = "i32"})
  local last = whole and creation.zeros({rows}, {dtype = "i32"}) or nil
  local logits = creation.zeros({rows, c.vocab}, {dtype = c.dtype, axes = "batch,vocab"})
  local function step() logits:copy_(own:next(ids, caches, start, last)) end
  return function() return generate.eval_mode(step) end,
         {weights = own, cache = caches, other = {ids, start, logits, last}}
end

-- The length of the longest prompt. Errors: a model or a prompt that generation() cannot plan.
local function longest_of(model, prompts)
  local context = model.config.context
  if not model.caches then
    lib.fail("plan: %s has no caches(), so each token reads all earlier ones again; this is not "
             .. "planned", getmetatable(model).class_name)
  end
  local longest = 0
  for _, ids in ipairs(prompts) do longest = math.max(longest, #ids) end
  if longest > context then
    lib.fail("plan: a prompt of %d tokens is longer than the model's context of %d; each token "
             .. "would read the last %d again, which is not planned", longest, context, context)
  end
  return longest
end

-- Planners (see batch.lua) of reading prompts of up to `longest` tokens, and of generating one of
-- `tokens` tokens; a batch of n is n samples of each of `texts` prompts.
local function planners(model, texts, longest, tokens)
  local room = generate.cache_length(model, longest, tokens)
  local function of(time, whole)
    return batches.planner(function(samples, measured)
      return step_plan.step(function()
        return reading(model, samples * texts, room, time, whole)
      end, measured, true)
    end)
  end
  return of(longest, true), of(1, false)
end

-- need_room(what, count, needs) raises an error if needs(count) bytes are more than the memory
-- budget. what: the setting of the count.
local function need_room(what, count, needs)
  if budget.lower_tier then return needs(count) end         -- raises an error if no plan exists
  local bytes, available = needs(count), step_plan.available_memory()
  if bytes > available then
    lib.fail("%s=%d needs %s, %s are available; lower %s (--plan finds the largest)", what, count,
             units.bytes(bytes), units.bytes(available), what)
  end
end

--- check_evaluation(model, batch): raises an error if evaluation(model, batch) does not fit into
--- memory. A small batch is not checked.
function M.check_evaluation(model, batch)
  if batch <= FEW then return end
  local of = batches.planner(function(rows, measured)
    return step_plan.step(function() return build_evaluation(model, rows) end, measured, true)
  end)
  need_room("batch", batch, function(rows) return of(rows).peak end)
end

--- check_generation(model, prompts, tokens, samples): raises an error if generation() does not fit
--- into memory. A few sequences are not checked, nor a model or prompts without a plan.
function M.check_generation(model, prompts, tokens, samples)
  if #prompts * samples <= FEW then return end
  local good, longest = pcall(longest_of, model, prompts)
  if not good then return end
  local read, extend = planners(model, #prompts, longest, tokens)
  need_room("samples", samples, function(n) return math.max(read(n).peak, extend(n).peak) end)
end

--- generation(model, prompts, tokens, samples) -> the plan of generating `tokens` tokens for
--- `samples` sequences of each of `prompts`, which are lists of ids. peak, kinds and available are
--- as in nn.plan_step; seconds, tasks and flops are those of one token for every sequence;
--- `reading` is the plan of reading the prompts. Prints as a table.
function M.generation(model, prompts, tokens, samples)
  local context, longest = model.config.context, longest_of(model, prompts)
  local count = #prompts * samples
  local read, extend = planners(model, #prompts, longest, tokens)
  local plan, first = extend(samples, true), read(samples, true)
  if first.peak > plan.peak then plan.peak, plan.kinds = first.peak, first.kinds end
  plan.reading, plan.available = first, step_plan.available_memory(true)
  first.available = plan.available
  local cached = math.min(tokens, context - longest + 1)     -- the first is the prompts'
  local to_read = step_plan.seconds(first)
  local all = to_read + (cached - 1) * step_plan.seconds(plan)
  local rows = {{"prompts", ("%s, about %s to read"):format(
    units.count(longest * count, "token"), step_plan.time_text(to_read))},
    {"text", ("about %s for %s per sequence, without the time to draw them"):format(
      step_plan.time_text(all), units.count(cached, "token"))}}
  if cached < tokens then
    rows[#rows + 1] = {"beyond", ("%d tokens exceed the context of %d; each reads the last %d "
      .. "again, which is not planned"):format(tokens - cached, context, context)}
  end
  return setmetatable(plan, {__tostring = function()
    return table.concat(step_plan.report(plan, {
      tokens = count, batch = samples, name = "samples", rows = rows,
      flops = forward_flops(model, longest + cached / 2, count),
      needs = function(n) return math.max(read(n).peak, extend(n).peak) end}), "\n")
  end})
end

return M
