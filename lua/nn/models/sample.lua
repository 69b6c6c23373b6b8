-- Draws a token from logits on the host: temperature, top-k, top-p and repetition penalty.
local heap = require "nn.base.heap"

local M = {}

-- Whether id a precedes id b: by logit, then by id.
local function above(logits, a, b)
  local x, y = logits[a], logits[b]
  return x > y or x == y and a < b
end

--- largest(logits, size, k) -> the ids of the k largest logits, the largest first, found with a
--- heap whose top is the smallest.
function M.largest(logits, size, k)
  local found = {}
  local function below(a, b) return above(logits, b, a) end
  for id = 0, k - 1 do heap.push(found, id, below) end
  for id = k, size - 1 do
    if logits[id] > logits[found[1]] then heap.replace(found, id, below) end
  end
  table.sort(found, function(a, b) return above(logits, a, b) end)
  return found
end

local function maximum(logits, size)
  local best = 0
  for id = 1, size - 1 do
    if logits[id] > logits[best] then best = id end
  end
  return best
end

-- The ids that can be in the smallest set of probability top_p, the likeliest first: all ids with a
-- probability below (1 - top_p) / size together have less than 1 - top_p, so that none is needed.
local function likely(logits, size, top, temperature, top_p)
  local sum = 0
  for id = 0, size - 1 do sum = sum + math.exp((logits[id] - top) / temperature) end
  local least = top + temperature * math.log(sum * (1 - top_p) / size)
  local ids = {}
  for id = 0, size - 1 do
    if logits[id] >= least then ids[#ids + 1] = id end
  end
  table.sort(ids, function(a, b) return above(logits, a, b) end)
  return ids
end

-- Draws from the first of these ids whose total probability is top_p.
local function draw_from(ids, logits, top, temperature, top_p, u)
  local weights, sum = {}, 0
  for i, id in ipairs(ids) do
    weights[i] = math.exp((logits[id] - top) / temperature)
    sum = sum + weights[i]
  end
  local kept, last = 0, #ids
  for i = 1, #ids do
    kept = kept + weights[i]
    if kept >= top_p * sum then
      last = i
      break
    end
  end
  local left = u * kept
  for i = 1, last do
    left = left - weights[i]
    if left < 0 then return ids[i] end
  end
  return ids[last]
end

--- draw(logits, size, options, u) -> an id, from 0. logits: a C array or a table, from 0; options:
--- temperature (0: the likeliest), top_k (0: all), top_p (1: all); u: uniform in [0,1).
function M.draw(logits, size, options, u)
  local temperature, top_k = options.temperature or 1, options.top_k or 0
  local top_p = options.top_p or 1
  local best = maximum(logits, size)
  if temperature == 0 then return best end
  local top = logits[best]
  if top_k > 0 and top_k < size then
    return draw_from(M.largest(logits, size, top_k), logits, top, temperature, top_p, u)
  end
  if top_p < 1 then
    return draw_from(likely(logits, size, top, temperature, top_p), logits, top, temperature,
                     top_p, u)
  end
  local sum = 0
  for id = 0, size - 1 do sum = sum + math.exp((logits[id] - top) / temperature) end
  local left = u * sum
  for id = 0, size - 1 do
    left = left - math.exp((logits[id] - top) / temperature)
    if left < 0 then return id end
  end
  return best
end

--- penalise(logits, ids, penalty): divides positive logits of these ids by the penalty and
--- multiplies negative ones by it, once per id (Keskar et al. 2019, arXiv:1909.05858).
function M.penalise(logits, ids, penalty)
  if penalty == 1 then return end
  local seen = {}
  for _, id in ipairs(ids) do
    if not seen[id] then
      seen[id] = true
      logits[id] = logits[id] > 0 and logits[id] / penalty or logits[id] * penalty
    end
  end
end

--- log_probability(logits, size, id) -> the natural logarithm of softmax(logits)[id].
function M.log_probability(logits, size, id)
  local top, sum = logits[maximum(logits, size)], 0
  for other = 0, size - 1 do sum = sum + math.exp(logits[other] - top) end
  return logits[id] - top - math.log(sum)
end

return M
