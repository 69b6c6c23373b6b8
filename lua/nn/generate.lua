-- A model in use: its mean loss on data, and text drawn from it. Neither changes the random state
-- or the data position of a training run.
local ffi = require "ffi"
local arguments = require "nn.arguments"
local data = require "nn.data"
local lib = require "nn.ffi"
local tensor = require "nn.tensor"

local M = {}

-- f(...) without gradients and without dropout.
local function as_it_is(f, ...)
  local nn = require "nn"
  local before = nn.training()
  nn.training(false)
  local results = {lib.protected(nn.no_grad, f, ...)}
  nn.training(before)
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, table.maxn(results))
end

local compiled = setmetatable({}, {__mode = "k"})       -- the compiled loss of each model

local function loss_function(model)
  compiled[model] = compiled[model] or require("nn").compile(function(ids, targets)
    return model(ids, targets)
  end)
  return compiled[model]
end

--- nn.evaluate(model, loader, batches) -> mean loss over the windows of the loader's part, always
--- the same ones; `batches` (0 or nil: all) bounds their number. nil when a signal to stop came.
---     local val_loss = nn.evaluate(model, data.val, 20)
function M.evaluate(model, loader, batches)
  local nn = require "nn"
  local f, sum, rows = loss_function(model), 0, 0
  local waiting                            -- the batch before: read while this one is computed
  local function read()
    sum, rows = sum + waiting.loss:item() * waiting.rows, rows + waiting.rows
    for _, t in ipairs(waiting) do t:release() end
    waiting.loss:release()
  end
  return as_it_is(function()
    for ids, targets, count in loader:windows(batches) do
      local before = waiting
      local loss = f(ids, targets)
      if before then read() end
      waiting = {ids, targets, loss = loss, rows = count}
      if nn.interrupted() then return nil end
    end
    read()
    return sum / rows
  end)
end

-- The ids' logits after the last one, as a host array, and their number.
local function next_logits(model, ids)
  local context = model.config and model.config.context or #ids
  local first = math.max(1, #ids - context + 1)
  local count = #ids - first + 1
  local array = ffi.new("int32_t[?]", count)
  for i = 1, count do array[i - 1] = ids[first + i - 1] end
  local input = tensor.from_host(array, {1, count}, "i32", {axes = "batch,time"})
  local logits = model(input)
  local last = logits:slice(2, count, count)
  local numbers, size = last:numbers()
  for _, t in ipairs {last, logits, input} do t:release() end
  return numbers, size
end

-- Draws an id (from 0) from logits[0..size-1]; u is uniform in [0,1).
local function draw(logits, size, temperature, top_k, u)
  local order = {}
  for i = 0, size - 1 do order[i + 1] = i end
  local function above(a, b) return logits[a] > logits[b] or logits[a] == logits[b] and a < b end
  if top_k > 0 and top_k < size or temperature == 0 then table.sort(order, above) end
  if temperature == 0 then return order[1] end
  local kept = top_k > 0 and math.min(top_k, size) or size
  local largest = -math.huge
  for i = 1, kept do largest = math.max(largest, logits[order[i]]) end
  local sum, weights = 0, {}
  for i = 1, kept do
    weights[i] = math.exp((logits[order[i]] - largest) / temperature)
    sum = sum + weights[i]
  end
  local left = u * sum
  for i = 1, kept do
    left = left - weights[i]
    if left < 0 then return order[i] end
  end
  return order[kept]
end

local generate_options = arguments.names "tokens temperature top_k seed"

--- nn.generate(model, ids, {tokens=100, temperature=1, top_k=0, seed=0}) -> ids, more by `tokens`
--- `ids`: a list of at least one token id; the model sees the last `context` of them. temperature 0
--- takes the likeliest token; top_k > 0 draws from the k likeliest. The same seed gives the same
--- text. Errors: an empty list; logits that are not numbers.
---     print(words:decode(nn.generate(model, words:ids "\n", {tokens = 200, top_k = 50})))
function M.generate(model, ids, options)
  options = arguments.options("generate", options, generate_options)
  local count = arguments.whole("generate", "tokens", options.tokens or 100, 0)
  local out = {}
  for i = 1, arguments.list("generate", "the ids", ids) do
    out[i] = arguments.whole("generate", "an id", ids[i], 0)
  end
  if #out == 0 then lib.fail("generate: give at least one token to go on from") end
  local temperature, top_k = options.temperature or 1, options.top_k or 0
  return as_it_is(function()
    for i = 1, count do
      local logits, size = next_logits(model, out)
      if logits[0] ~= logits[0] then lib.fail("generate: the model's logits are NaN") end
      local u = data.random(options.seed or 0, i)
      out[#out + 1] = draw(logits, size, temperature, top_k, u)
      if require("nn").interrupted() then break end
    end
    return out
  end)
end

return M
