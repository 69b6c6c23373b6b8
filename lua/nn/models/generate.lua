-- Generates text with a model. The random state and the data position of a training run do not
-- change.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local evaluate = require "nn.models.evaluate"
local from_host = require("nn.core.creation").from_host
local kept = require "nn.models.kept"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local random = require("nn.data.random").random
local sample = require "nn.models.sample"
local tensor = require "nn.core.tensor"

local M = {}

-- A row is a sequence that is being generated: {ids=, logprobs=, reason=, text=}.

local function tensor_of(rows, columns, value)
  local array = ffi.new("int32_t[?]", #rows * columns)
  for r, row in ipairs(rows) do
    for c = 1, columns do array[(r - 1) * columns + c - 1] = value(row, c, r) end
  end
  return array
end

local function ids_tensor(rows, columns, value)
  local array = tensor_of(rows, columns, value)
  return from_host(array, {#rows, columns}, "i32", {axes = "batch,time"})
end

local function vector(rows, value)
  return from_host(tensor_of(rows, 1, value), {#rows}, "i32")
end

-- Logits (rows,V) as a new host array, and V.
local function to_host(logits)
  local size = logits:dim(-1)
  local array = logits.dtype == "f32" and logits:host() or (logits:numbers())
  logits:release()
  return array, size
end

-- Without a cache: reads the last `context` tokens again for each new token. Without a scope, the
-- temporaries of many tokens would wait for a garbage collection.
local function plain_reader(model)
  local context = model.config and model.config.context or math.huge
  local compute = evaluate.callable(model)
  local function read(row)
    local first = math.max(1, #row.ids - context + 1)
    local count = #row.ids - first + 1
    local input = ids_tensor({row}, count, function(_, c) return row.ids[first + c - 1] end)
    local last = compute(input):slice(2, count, count)
    return to_host(last:reshape(1, last:dim(-1)))
  end
  return function(rows)
    local all, size
    for r, row in ipairs(rows) do
      local numbers
      numbers, size = tensor.scope(read, row)
      all = all or ffi.new("double[?]", #rows * size)
      for i = 0, size - 1 do all[(r - 1) * size + i] = numbers[i] end
    end
    return all, size
  end
end

-- With a cache: reads all prompts at once, without the `done` tokens that are in the caches and
-- shorter ones padded at their end, then one token at a time. Cache entries of the padding are
-- overwritten before they are read. source: {text=, mask=}, what model:next of an encoder_decoder
-- needs; empty for a decoder.
local function cached_reader(model, caches, done, source)
  local step = compile.compile(function(ids, start, last)
    return layer.call(model, model.next, ids, caches, start, last, source.text or done > 0,
                      source.mask)
  end)
  local prompts_read = false
  local function read(...)
    local array, size = to_host(step(...))
    for _, x in ipairs {...} do x:release() end
    return array, size
  end
  return function(rows)
    if prompts_read then
      local ids = ids_tensor(rows, 1, function(row) return row.ids[#row.ids] end)
      return read(ids, vector(rows, function(row) return #row.ids - 1 end))
    end
    prompts_read = true
    local longest = 0
    for _, row in ipairs(rows) do longest = math.max(longest, #row.ids - done) end
    local ids = ids_tensor(rows, longest, function(row, c) return row.ids[done + c] or 0 end)
    local last = vector(rows, function(row, _, r)
      return (r - 1) * longest + #row.ids - done - 1
    end)
    return read(ids, vector(rows, function() return done end), last)
  end
end

-- The reason why a row ends with its newest id: a stop id, or a stop text in the generated text;
-- nil if it continues.
local function reason_to_stop(row, options, id)
  for _, stop in ipairs(options.stop_ids or {}) do
    if stop == id then return "stop" end
  end
  if not options.stop then return nil end
  if not row.next_part then
    row.next_part = options.tokenizer:stream()
    for i = row.source and 2 or 1, #row.ids - 1 do row.next_part(row.ids[i]) end
  end
  row.text = (row.text or "") .. row.next_part(id)
  for _, stop in ipairs(options.stop) do
    if row.text:find(stop, 1, true) then return "stop" end
  end
end

-- The row's logits, with a penalty for ids that occur in it; a copy, so that log-probabilities come
-- from the original.
local function penalised(row, logits, size, options)
  local penalty = options.repetition_penalty or 1
  if penalty == 1 then return logits end
  local copy = ffi.new("double[?]", size)
  for i = 0, size - 1 do copy[i] = logits[i] end
  sample.penalise(copy, row.ids, penalty)
  return copy
end

local function need_numbers(logit)
  if logit ~= logit then lib.deny("generate: the model's logits are NaN") end
end

-- Appends an id to row number r; returns whether the row continues.
local function accept(row, r, id, options)
  row.ids[#row.ids + 1] = id
  if options.on_token then options.on_token(id, r) end
  row.reason = reason_to_stop(row, options, id)
  return not row.reason
end

-- Draws the next id of every row that continues; logits: (rows,V) on the host. Returns whether any
-- row continues.
local function extend(rows, logits, size, options, step)
  local continues = false
  for r, row in ipairs(rows) do
    local own = logits + (r - 1) * size
    need_numbers(own[0])
    if not row.reason then
      local u = random((options.seed or 0) + r - 1, step)
      local id = sample.draw(penalised(row, own, size, options), size, options, u)
      if options.logprobs then
        row.logprobs[#row.logprobs + 1] = sample.log_probability(own, size, id)
      end
      continues = accept(row, r, id, options) or continues
    end
  end
  return continues
end

-- Pipelined greedy decoding of up to `most` tokens per row: the engine computes the argmax and uses
-- it as the next input, and each step is submitted before the ids of the previous one are read.
-- Returns whether any row continues.
local function decode_pipelined(model, caches, source, rows, options, most)
  local step = compile.compile(function(ids, start)
    local logits = layer.call(model, model.next, ids, caches, start, nil, source.text, source.mask)
    return logits:argmax {axis = -1, keepdim = true}:to "i32", start + 1, logits:slice(2, 1, 1)
  end)
  local ids = ids_tensor(rows, 1, function(row) return row.ids[#row.ids] end)
  local start = vector(rows, function(row) return #row.ids - 1 end)
  local function read(found, first)
    local numbers, checks, continues = found:host(), first:host(), false
    for r, row in ipairs(rows) do
      need_numbers(checks[r - 1])
      if not row.reason then
        continues = accept(row, r, numbers[r - 1], options) or continues
      end
    end
    first:release()
    return continues
  end
  local before, before_first
  for _ = 1, most do
    local found, next_start, first = step(ids, start)
    start:release()
    if before and (not read(before, before_first) or cluster.interrupted()) then return false end
    if before then before:release() end
    ids, start, before, before_first = found, next_start, found, first
  end
  return before == nil or read(before, before_first)
end

local BLOCK = 64                 -- caches have room for a multiple of so many tokens

--- cache_length(model, longest, tokens) -> how many tokens the caches have room for, to continue
--- prompts of up to `longest` tokens by `tokens`: no more than the model's context.
function M.cache_length(model, longest, tokens)
  local context = model.config and model.config.context or math.huge
  return math.min(context, math.ceil((longest + tokens) / BLOCK) * BLOCK)
end

-- Reads the texts of all rows once, for an encoder_decoder: {text=, mask=}, see cached_reader().
local function read_texts(model, rows)
  local longest, lists = 0, {}
  for r, row in ipairs(rows) do
    lists[r], longest = row.source, math.max(longest, #row.source)
  end
  local ids = ids_tensor(lists, longest, function(list, c) return list[c] or model.config.pad end)
  local mask = ids_tensor(lists, longest, function(list, c) return list[c] and 1 or 0 end)
  local read = compile.compile(function(...)
    return unpack(layer.call(model, model.read, ...))
  end)
  return {text = {read(ids, mask)}, mask = mask}
end

-- Caches for the rows, and how many tokens are in them already.
local function caches_for(model, rows, options, length)
  if options.cache then return kept.take(options.cache, model, rows[1].ids, length) end
  return model:caches(#rows, length), 0
end

local function run(model, rows, options)
  local context = model.config and model.config.context or math.huge
  local longest, tokens, caches, done = 0, options.tokens or 100, nil, 0
  for _, row in ipairs(rows) do longest = math.max(longest, #row.ids) end
  if model.caches and longest <= context then
    local length = M.cache_length(model, longest, tokens)
    caches, done = caches_for(model, rows, options, length)
  end
  rows.read = tokens > 0 and longest - done or 0
  local source = model.read and read_texts(model, rows) or {}
  local read, step = caches and cached_reader(model, caches, done, source) or plain_reader(model), 1
  local greedy = options.temperature == 0 and not options.logprobs
    and (options.repetition_penalty or 1) == 1
  while step <= tokens do
    if caches and longest + step - 1 > context then caches, read = nil, plain_reader(model) end
    local logits, size = read(rows)
    if not extend(rows, logits, size, options, step) or cluster.interrupted() then break end
    step = step + 1
    if caches and greedy then
      local most = math.min(tokens, context - longest + 1) - step + 1
      local continues = decode_pipelined(model, caches, source, rows, options, most)
      if not continues or cluster.interrupted() then break end
      step, caches, read = step + math.max(0, most), nil, plain_reader(model)
    end
  end
end

local known = arguments.names([[tokens temperature top_k top_p repetition_penalty seed stop stop_ids
                               tokenizer on_token logprobs cache]])

-- Checks the options; converts `stop` and `stop_ids` to lists.
local function checked_options(given)
  local options = {}
  for name, value in pairs(arguments.options("generate", given, known)) do options[name] = value end
  local function number(name, low, high)
    local value = options[name]
    if value ~= nil and not (type(value) == "number" and value >= low and value <= high) then
      lib.misuse("generate: %s is %s; a number from %g to %g is needed", name, tostring(value),
                 low, high)
    end
  end
  local function whole(name, value, low)
    if value ~= nil then arguments.whole("generate", name, value, low) end
  end
  whole("tokens", options.tokens, 0)
  whole("top_k", options.top_k, 0)
  whole("seed", options.seed, 0)
  number("temperature", 0, math.huge)
  number("top_p", 0, 1)
  number("repetition_penalty", 1e-3, 1e3)
  if options.on_token ~= nil then arguments.callable("generate: on_token", options.on_token) end
  for _, name in ipairs {"stop", "stop_ids"} do
    local value = options[name]
    if value ~= nil and type(value) ~= "table" then options[name] = {value} end
  end
  for _, id in ipairs(options.stop_ids or {}) do whole("a stop id", id, 0) end
  for _, text in ipairs(options.stop or {}) do
    arguments.need(type(text) == "string" and text ~= "", "generate", "a stop text", text,
                   "a text of at least one byte is needed")
  end
  local words = options.tokenizer
  arguments.need(words == nil or type(words) == "table" and words.decode, "generate",
                 "the tokenizer", words, "a result of nn.tokenizer or nn.vocabulary is needed")
  if options.stop and not words then lib.misuse("generate: `stop` needs `tokenizer` too") end
  arguments.need(options.cache == nil or type(options.cache) == "table", "generate", "the cache",
                 options.cache, "a table is needed, {} at first")
  return options
end

-- Generates; with the option `cache`, for one sequence, from the caches of earlier calls.
local function run_all(model, rows, options)
  if not options.cache then return evaluate.eval_mode(run, model, rows, options) end
  arguments.need(model.kind == "decoder" and model.caches, "generate", "the model", model,
                 "the option `cache` needs one of a class of nn.decoder")
  arguments.need(#rows == 1, "generate", "the number of sequences", #rows,
                 "1 is needed with the option `cache`")
  kept.continue(options.cache, evaluate.eval_mode, run, model, rows, options)
end

--- nn.generate(model, ids, {tokens=100, temperature=1, top_k=0, top_p=1, repetition_penalty=1,
--- seed=0, stop, stop_ids, tokenizer, on_token, logprobs=false, cache}) -> ids with new ones, info
--- `ids`: a list of token ids (at least one) or a list of such lists, which may differ in length;
--- the result has the same form. A tensor of one or two axes counts as such a list. The ids are
--- continued; an encoder-decoder reads them, and the result is its answer alone. temperature 0
--- takes the likeliest token (greedy decoding); top_k > 0 draws from the k likeliest tokens; top_p
--- < 1 from the likeliest tokens with this total probability. The same seed gives the same text. A
--- sequence ends after an id of `stop_ids`, or when its generated text contains a text of `stop`,
--- which needs `tokenizer`; both accept one value or a list. Without stop_ids, those of a Hugging
--- Face folder count, see nn.load_hf; {}: none. on_token(id, row) is called for each new id. cache:
--- a table, {} at first, in which the caches of one sequence stay for the next call, which then
--- reads its ids only from the first one on that differs. The weights must not change in between.
--- info: reason ("stop" or "length") and, with logprobs, the log-probability of each new id under
--- the model; for a list of lists, lists of these. With cache also read: how many of the given ids
--- the model read. A model with caches() and next() reads each token once up to its context length;
--- beyond, each new token reads the last `context` ids again.
---     local ids, info = nn.generate(model, {72, 105}, {tokens = 5, top_k = 50, seed = 3})
---     #ids, info.reason  --> 7, "length"
function M.generate(model, ids, options)
  options = checked_options(options)
  local class = type(model) == "table" and getmetatable(model)
  arguments.need(class and class.__call, "generate", "the model", model,
                 "a module that returns logits is needed")
  arguments.need(class.kind ~= "encoder", "generate", "the model", model, "a decoder, which "
                 .. "writes from left to right, or an encoder-decoder is needed")
  arguments.need(type(ids) == "table", "generate", "the ids", ids, "a list is needed")
  if tensor.is_tensor(ids) then
    if #ids.shape ~= 1 and #ids.shape ~= 2 then
      lib.misuse("generate: the ids have %d axes; one or two are needed", #ids.shape)
    end
    ids = ids:table()
  end
  options.stop_ids = options.stop_ids or (model.generation or {}).stop_ids
  local many = type(ids[1]) == "table"
  local rows = {}
  for r, list in ipairs(many and ids or {ids}) do
    rows[r] = {ids = {}, logprobs = {}}
    for i = 1, arguments.list("generate", "the ids", list) do
      rows[r].ids[i] = arguments.whole("generate", "an id", list[i], 0)
    end
    if #list == 0 then lib.deny("generate: give at least one token") end
    if model.read then rows[r].source, rows[r].ids = rows[r].ids, {model.config.start} end
  end
  run_all(model, rows, options)
  local out, info = {}, {reason = {}, logprobs = options.logprobs and {} or nil}
  for r, row in ipairs(rows) do
    if row.source then table.remove(row.ids, 1) end
    out[r], info.reason[r] = row.ids, row.reason or "length"
    if options.logprobs then info.logprobs[r] = row.logprobs end
  end
  if many then return out, info end
  return out[1], {reason = info.reason[1], logprobs = info.logprobs and info.logprobs[1],
                  read = options.cache and rows.read}
end

return M
