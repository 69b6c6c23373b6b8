-- Caches of keys and values that stay between calls of nn.generate, in the table of its option
-- `cache`. Its state is {model=, caches=, length=, ids=}. length: for how many tokens the caches
-- have room; ids: those whose keys and values are in the caches.
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"

local M = {}

-- Replaces the caches by longer ones with the same content, one by one, so that only one of the old
-- ones is in memory beside its successor.
local function grow(state, length)
  for i, old in ipairs(state.caches) do
    local shape = {old:dims()}
    shape[3] = length
    state.caches[i] = creation.zeros(shape, {dtype = old.dtype}):assign_(old, {1, 1, 1, 1})
    old:release()
    engine.sync()
  end
  state.length = length
end

-- The first ids, at most `most`, that are equal in both lists.
local function common(a, b, most)
  local out = {}
  while #out < most and a[#out + 1] == b[#out + 1] do out[#out + 1] = a[#out + 1] end
  return out
end

-- Whether the caches still exist: a scope in which they were created frees them.
local function are_alive(state)
  return lib.attempt(function() state.caches[1]:memory_nodes() end)
end

local function drop(state)
  for _, cache in ipairs(are_alive(state) and state.caches or {}) do cache:release() end
  state.model, state.caches, state.length, state.ids = nil, nil, 0, {}
end

--- take(cache, model, ids, length) -> caches with room for `length` tokens, and how many of the ids
--- are in them. The last one never is, because its logits are needed. Caches grow by at least half
--- of their length, up to the model's context. For calls within continue().
function M.take(cache, model, ids, length)
  local state = cache[M]
  if state.model ~= model or not are_alive(state) then drop(state) end
  state.model, state.ids = model, common(ids, state.ids, math.min(#state.ids, #ids - 1))
  if length > state.length then
    length = math.min(model.config.context, math.max(length, math.ceil(1.5 * state.length)))
    if #state.ids > 0 then
      grow(state, length)
    else
      drop(state)
      state.model, state.caches, state.length = model, model:caches(1, length), length
    end
  end
  state.continued, state.given = ids, #ids
  return state.caches, #state.ids
end

--- continue(cache, f, ...): calls f(...), which continues the ids that it gives take(), and notes
--- which of them are then in the caches. Drops the caches if f fails, unless a stop signal ends it
--- after take(). Errors: f calls continue() with the same table.
function M.continue(cache, f, ...)
  local state = cache[M] or {ids = {}, length = 0}
  cache[M] = state
  if state.is_busy then lib.misuse "generate: another call uses the cache and has not ended" end
  state.is_busy, state.continued = true, nil
  local good, problem = xpcall(f, lib.traced, ...)
  local ids = state.continued
  state.is_busy = false
  if not good and not (ids and lib.is_interrupt(problem)) then
    drop(state)
  elseif ids and #ids > state.given then
    state.ids = common(ids, ids, math.min(#ids - 1, state.length))
  end
  if not good then error(problem, 0) end
end

return M
