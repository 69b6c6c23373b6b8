-- Plans of inference, for the recipes that evaluate a model and generate text. A plan uses the
-- settings of the model; its weights are not read.
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local creation = require "nn.core.creation"
local eval_mode = require("nn.models.evaluate").eval_mode
local generate = require "nn.models.generate"
local lib = require "nn.base.capi"
local quantize = require "nn.models.quantize"
local spans = require "nn.data.spans"
local step_plan = require "nn.plan.step"
local units = require "nn.base.units"

local M = {}
local FEW = 64                   -- windows or sequences whose memory is not checked

-- A new model with the settings of the given one, which may be an outline without parameters, and
-- the list of its tensors that are no parameters.
local function like(model)
  local own = getmetatable(model)(model.config)
  if model.quantized then quantize.quantize_weights(own) end
  return own, quantize.tensors(own)
end

local function ids_of(rows, time)
  return creation.zeros({rows, time}, {dtype = "i32", axes = "batch,time"})
end

-- Forward FLOPs, a third of the total, of `tokens` tokens that attend to `time` tokens; nil if
-- unknown. answer: the tokens of an encoder-decoder's answer to `time` tokens.
local function forward_flops(model, time, tokens, answer)
  return model.flops_per_token and model:flops_per_token(time, answer) / 3 * tokens
end

-- The lengths of the texts and the targets in a window of gpt2_eval.lua.
local function window_of(model, context)
  if model.kind ~= "encoder_decoder" then return context, context end
  return select(2, spans.span_lengths(context, 0.15, 3))
end

local function build_evaluation(model, rows, context)
  local time, answer = window_of(model, context)
  local own, others = like(model)
  local ids, targets = ids_of(rows, time), ids_of(rows, answer)
  others[#others + 1], others[#others + 2] = ids, targets
  return function() return eval_mode(own, ids, targets) end,
         {weights = own, other = others}
end

--- evaluation(model, batch, context) -> the plan of one batch of windows of `context` tokens in
--- gpt2_eval.lua; prints as a table. `model`: a model or its outline.
function M.evaluation(model, batch, context)
  local time, answer = window_of(model, context)
  return step_plan.plan_step(function(rows) return build_evaluation(model, rows, context) end,
                             {batch = batch, tokens = batch * time, alone = true,
                              flops = forward_flops(model, time, batch * time, answer)})
end

-- A step that reads `time` tokens of each row into caches for `room` tokens: whole prompts
-- (`whole`), or the newest token. It copies the result to `logits`, the tensor that the script
-- reads.
local function reading(model, rows, room, time, whole)
  local own, others = like(model)
  local c = model.config
  local caches = own:caches(rows, room)
  local ids, start = ids_of(rows, time), creation.zeros({rows}, {dtype = "i32"})
  local last = whole and creation.zeros({rows}, {dtype = "i32"}) or nil
  local logits = creation.zeros({rows, c.vocab}, {dtype = c.dtype, axes = "batch,vocab"})
  for _, x in ipairs {ids, start, logits, last} do others[#others + 1] = x end
  local function step() logits:copy_(own:next(ids, caches, start, last)) end
  return function() return eval_mode(step) end,
         {weights = own, cache = caches, other = others}
end

-- The same of an encoder-decoder: it reads texts of `longest` tokens (`whole`), or writes the next
-- token of each answer.
local function answering(model, rows, room, longest, whole)
  local own, others = like(model)
  local c, caches, seen, held = model.config, own:caches(rows, room), {}, {}
  local ids, mask, width = ids_of(rows, longest), ids_of(rows, longest), caches[1]:dim(2)
  for i in ipairs(own.decoder) do
    seen[i] = creation.zeros({rows, longest, width * caches[1]:dim(4)}, {dtype = c.dtype})
    held[2 * i - 1], held[2 * i] = caches[i], seen[i]
  end
  local newest, start = ids_of(rows, 1), creation.zeros({rows}, {dtype = "i32"})
  local logits = creation.zeros({rows, c.vocab}, {dtype = c.dtype, axes = "batch,vocab"})
  for _, x in ipairs {ids, mask, newest, start, logits} do others[#others + 1] = x end
  local function read()
    for i, keys in ipairs(own:read(ids, mask)) do seen[i]:copy_(keys) end
  end
  local function write() logits:copy_(own:next(newest, caches, start, nil, seen, mask)) end
  return function() return eval_mode(whole and read or write) end,
         {weights = own, cache = held, other = others}
end

-- The length of the longest prompt. Errors: a model or a prompt that generation() cannot plan.
local function longest_of(model, prompts)
  local context = model.config.context or math.huge
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
  local answers = model.kind == "encoder_decoder"
  local room = generate.cache_length(model, answers and 1 or longest, tokens)
  local function of(time, whole)
    return batches.planner(function(samples, measured)
      return step_plan.step(function()
        if answers then return answering(model, samples * texts, room, longest, whole) end
        return reading(model, samples * texts, room, time, whole)
      end, measured, true)
    end)
  end
  return of(longest, true), of(1, false)
end

-- need_room(what, count, needs) raises an error if needs(count) bytes are more than the memory
-- budget. what: the setting of the count.
local function need_room(what, count, needs)
  if budget.tiers then return needs(count) end         -- raises an error if no plan exists
  local bytes, available = needs(count), step_plan.available_memory()
  if bytes > available then
    lib.fail("%s=%d needs %s, %s are available; lower %s (--plan finds the largest)", what, count,
             units.bytes(bytes), units.bytes(available), what)
  end
end

--- check_evaluation(model, batch, context): raises an error if evaluation(model, batch, context)
--- does not fit into memory. A small batch is not checked.
function M.check_evaluation(model, batch, context)
  if batch <= FEW then return end
  local of = batches.planner(function(rows, measured)
    return step_plan.step(function() return build_evaluation(model, rows, context) end, measured,
                          true)
  end)
  need_room("batch", batch, function(rows) return of(rows).peak end)
end

--- check_generation(model, prompts, tokens, samples): raises an error if generation() does not fit
--- into memory. A few sequences are not checked, nor a model or prompts without a plan.
function M.check_generation(model, prompts, tokens, samples)
  if #prompts * samples <= FEW then return end
  local good, longest = lib.attempt(longest_of, model, prompts)
  if not good then return end
  local read, extend = planners(model, #prompts, longest, tokens)
  need_room("samples", samples, function(n) return math.max(read(n).peak, extend(n).peak) end)
end

-- Forward FLOPs of one token for each of `count` sequences, of which there are `done` tokens so
-- far; text: the tokens of the text that they answer, or nil.
local function flops_of_token(model, done, text, count)
  if not text then return forward_flops(model, done, count) end
  return forward_flops(model, text, text * count, done + 1)
    - forward_flops(model, text, text * count, done)
end

--- generation(model, prompts, tokens, samples) -> the plan of generating `tokens` tokens for
--- `samples` sequences of each of `prompts`, which are lists of ids. peak, kinds and available are
--- as in nn.plan_step; seconds, tasks and flops are those of one token for every sequence;
--- `reading` is the plan of reading the prompts. Prints as a table.
function M.generation(model, prompts, tokens, samples)
  local context, longest = model.config.context or math.huge, longest_of(model, prompts)
  local text = model.kind == "encoder_decoder" and longest or nil
  local count = #prompts * samples
  local read, extend = planners(model, #prompts, longest, tokens)
  local plan, first = extend(samples, true), read(samples, true)
  if first.peak > plan.peak then plan.peak, plan.kinds = first.peak, first.kinds end
  plan.reading, plan.available = first, step_plan.available_memory(true)
  first.available = plan.available
  local cached = math.min(tokens, context - longest + 1)     -- the first is the prompts'
  local to_read = step_plan.seconds(first)
  local all = to_read + (cached - (text and 0 or 1)) * step_plan.seconds(plan)
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
      flops = flops_of_token(model, (text and 0 or longest) + cached / 2, text, count),
      needs = function(n) return math.max(read(n).peak, extend(n).peak) end}), "\n")
  end})
end

return M
