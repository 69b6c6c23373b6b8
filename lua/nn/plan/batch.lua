-- Plans of batches of any size from recordings of limited size, and the search for the largest
-- batch that fits.
local engine = require "nn.base.engine"

local M = {}
local DIRECT = 16                -- batches of up to this size are recorded in full
local FIRST = 4                  -- the first size to record for a larger batch
local MOST = 20000               -- approximate limit of tasks in a recording for a larger batch
local LARGEST = 2 ^ 31           -- batch of a search: the memory may not depend on the batch

local function rounded(x) return math.floor(x + 0.5) end

--- line(a, b, share) -> b + share * (b - a), at least 0, of every number in two tables of plans;
--- nil if they are nil.
function M.line(a, b, share)
  if type(b) ~= "table" then return b and math.max(0, b + share * (b - a)) end
  local out = {}
  for name, value in pairs(b) do out[name] = M.line(a[name], value, share) end
  return out
end

-- The plan of a batch of n, on the line through the plans of two smaller batches.
local function extrapolated(low, high, n)
  local plan, share = {}, (n - high.batch) / (high.batch - low.batch)
  local function line(a, b) return M.line(a, b, share) end
  for name, value in pairs(high) do plan[name] = value end
  for _, name in ipairs {"flops", "seconds", "busy"} do plan[name] = line(low[name], high[name]) end
  for _, name in ipairs {"tasks", "lasting", "recomputed"} do
    plan[name] = rounded(line(low[name], high[name]))
  end
  plan.tiers, plan.ranks = line(low.tiers, high.tiers), line(low.ranks, high.ranks)
  plan.kinds, plan.peak, plan.batch, plan.extrapolated = {}, 0, n, true
  for name, bytes in pairs(high.kinds) do
    plan.kinds[name] = rounded(line(low.kinds[name], bytes))
    plan.peak = plan.peak + plan.kinds[name]
  end
  return plan
end

--- planner(record) -> plan(n, measured), the plan of a batch of n. record(n, measured) makes it by
--- recording, with the number of recorded tasks in `recorded`. A batch with too many tasks is not
--- recorded: memory, time and tasks grow linearly with it, so its plan is extrapolated from two
--- smaller batches; `recorded` and `took` are those of the larger of them.
function M.planner(record)
  local nominal = {}
  local function of(n, measured)
    if not measured and nominal[n] then return nominal[n] end
    local plan = record(n, measured)
    plan.batch = n
    if not measured then nominal[n] = plan end
    return plan
  end
  return function(n, measured)
    local size = n > DIRECT and FIRST or n
    while size < n do            -- tasks per row do not increase with the size
      local tasks = of(size, false).recorded
      if tasks >= MOST / 2 then break end
      size = math.min(n, math.floor(size * MOST / tasks))
    end
    local plan = of(size, measured)
    if size == n then return plan end
    return extrapolated(of(math.floor(size / 2), measured and "known"), plan, n)
  end
end

-- Rounds down to two significant digits, but not below `least`.
local function about(x, least)
  local unit = 10 ^ math.max(0, math.floor(math.log10(x)) - 1)
  return math.max(least, math.floor(x / unit) * unit)
end

--- largest(needs, batch, available, seconds, fixed, took) -> the largest batch with needs(batch) <=
--- available (0: none), and its bytes; if the search ends after `seconds`, a batch that fits, nil,
--- and an estimate of the largest one; only 2^31, or a larger `batch`, if that fits. fixed: bytes
--- that any batch needs, took: seconds that a call of needs() may take, both 0 by default. needs()
--- is nearly linear, so interpolation takes few calls; the first is needs(batch).
function M.largest(needs, batch, available, seconds, fixed, took)
  local deadline, longest = engine.now() + seconds, took or 0
  local fits, bytes, slope = 0, fixed or 0, nil  -- the largest batch known to fit, and its bytes
  local fails, too_much = math.huge, nil         -- the smallest known not to fit, and its bytes
  local try, gap, bisect, limit = batch, 1, false, math.max(LARGEST, batch)
  while fails - fits > 1 do
    if fits >= limit then return fits end
    local start = engine.now()
    if fits > 0 and start + longest > deadline then
      local per_row = too_much and (too_much - bytes) / (fails - fits) or slope
        or (bytes - (fixed or 0)) / fits
      local line = per_row > 0 and fits + (available - bytes) / per_row or limit
      return fits, nil, about(math.min(fails - 1, line, limit), fits)
    end
    local need = needs(try)
    longest = math.max(longest, engine.now() - start)
    if need > available then
      fails, too_much = try, need
    else
      if need > bytes and fits > 0 then slope = (need - bytes) / (try - fits) end
      fits, bytes = try, need
    end
    if fails == math.huge then
      local line = slope and fits + (available - bytes) / slope or 2 * fits
      try, gap = math.min(math.max(line, fits + gap), 64 * fits), 2 * gap
    else
      local line = fits + (available - bytes) / (too_much - bytes) * (fails - fits)
      try, bisect = bisect and (fits + fails) / 2 or line, not bisect
    end
    try = math.max(fits + 1, math.min(math.floor(try), fails - 1, limit))
  end
  return fits, bytes
end

return M
