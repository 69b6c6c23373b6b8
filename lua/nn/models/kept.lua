-- Caches of keys and values that stay between calls of nn.generate, in the table of its option
-- `cache`: {model=, caches=, length=, ids=}. length: for how many tokens the caches have room; ids:
-- those whose keys and values are in the caches.
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"

local M = {}

-- Replaces the caches by longer ones with the same content, one by one, so that only one of the old
-- ones is in memory beside its successor.
local function grow(kept, length)
  for i, old in ipairs(kept.caches) do
    local shape = {old:dims()}
    shape[3] = length
    kept.caches[i] = creation.zeros(shape, {dtype = old.dtype}):assign_(old, {1, 1, 1, 1})
    old:release()
    engine.sync()
  end
  kept.length = length
end

-- The first ids, at most `most`, that are equal in both lists.
local function common(a, b, most)
  local out = {}
  while #out < most and a[#out + 1] == b[#out + 1] do out[#out + 1] = a[#out + 1] end
  return out
end

--- take(kept, model, ids, length) -> caches with room for `length` tokens, and how many of the ids
--- are in them. The last one never is, because its logits are needed. Caches grow by at least half
--- of their length, up to the model's context. For calls within continue().
function M.take(kept, model, ids, length)
  if kept.model ~= model then kept.model, kept.caches, kept.length, kept.ids = model, nil, 0, {} end
  kept.ids = common(ids, kept.ids, math.min(#kept.ids, #ids - 1))
  if length > kept.length then
    length = math.min(model.config.context, math.max(length, math.ceil(1.5 * kept.length)))
    if #kept.ids > 0 then
      grow(kept, length)
    else
      for _, old in ipairs(kept.caches or {}) do old:release() end
      kept.caches, kept.length = model:caches(1, length), length
    end
  end
  kept.continued, kept.given = ids, #ids
  return kept.caches, #kept.ids
end

--- continue(kept, f, ...): calls f(...), which continues the ids that it gives take(), and notes
--- which of them are then in the caches. Drops the caches if f fails, unless a stop signal ends it
--- after take().
function M.continue(kept, f, ...)
  local good, problem = lib.protected(f, ...)
  local ids = kept.continued
  kept.continued = nil
  if not good and not (ids and lib.is_interrupt(problem)) then kept.model = nil end
  if ids and #ids > kept.given then
    kept.ids = common(ids, ids, math.min(#ids - 1, kept.length))
  end
  if not good then error(problem, 0) end
end

return M
