-- The scale of an axis: its range, round ticks, and their labels.
local M = {}
local LARGEST, SMALLEST = 1e300, 1e-300    -- so that differences and powers of ten are finite
local CLOSEST = 1e-12                      -- difference of two values, relative to them

--- is_shown(value, log) -> whether a scale can show a value: neither NaN nor infinite, nor nearly;
--- log: and above 0.
function M.is_shown(value, log)
  return value == value and math.abs(value) <= LARGEST and (not log or value >= SMALLEST)
end

-- The range [low, high], or one with `around` on both sides where the values are too close.
local function spread(low, high, around)
  local least = math.max(SMALLEST, CLOSEST * math.max(math.abs(low), math.abs(high)))
  if high - low > least then return low, high end
  return low - around, high + around
end

-- The smallest of 1, 2, 5, 10, 20, ... (times a power of ten) that is at least x.
local function round_up(x)
  local power = 10 ^ math.floor(math.log10(x))
  for _, factor in ipairs {1, 2, 5} do
    if factor * power >= x * (1 - 1e-9) then return factor * power end
  end
  return 10 * power
end

-- A function that writes the ticks of an axis with as many digits as distinguish them.
local function labels(step, largest)
  if largest >= 1e-3 and largest < 1e6 then
    local decimals = math.max(0, -math.floor(math.log10(step) + 1e-9))
    local format = ("%%.%df"):format(decimals)
    return function(value) return (format:format(value):gsub("^%-(0[.0]*)$", "%1")) end
  end
  local digits = math.max(0, math.ceil(math.log10(largest / step) - 1e-9))
  local format = ("%%.%de"):format(digits)
  return function(value)
    if value == 0 then return "0" end
    return (format:format(value):gsub("%.?0*e%+?(%-?)0*", "e%1"):gsub("e$", ""))
  end
end

-- Ticks at the multiples of a round step within [low, high], at most `most`.
local function linear_ticks(low, high, most)
  local step = round_up((high - low) / most)
  local label, ticks = labels(step, math.max(math.abs(low), math.abs(high))), {}
  for i = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do
    ticks[#ticks + 1] = {value = i * step, label = label(i * step)}
  end
  return ticks, step
end

local function power_label(factor, power)
  if power >= -3 and power <= 4 then return ("%.14g"):format(factor * 10 ^ power) end
  return ("%de%d"):format(factor, power)
end

-- Ticks at powers of ten within [low, high], at their multiples by 2 and 5 if there are few powers;
-- nil if even these are few.
local function power_ticks(low, high, most)
  local first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
  local factors = last - first < 2 and {1, 2, 5} or {1}
  local every = math.ceil((last - first + 1) / most)
  local ticks = {}
  for power = first - 1, last do
    for _, factor in ipairs((power - first) % every == 0 and factors or {}) do
      local value = factor * 10 ^ power
      if value >= low * (1 - 1e-9) and value <= high * (1 + 1e-9) then
        ticks[#ticks + 1] = {value = value, label = power_label(factor, power)}
      end
    end
  end
  return #ticks > 1 and ticks or nil
end

--- new{low=, high=, log=, most=, whole=} -> {low=, high=, ticks = {{value=, label=}, ...}, at=}:
--- the scale of the values from `low` to `high` with about `most` ticks. log: a logarithmic scale,
--- of values above 0; whole: the range ends at ticks. at(value) is 0 at its low end and 1 at its
--- high end.
function M.new(of)
  local half, ticks = math.abs(of.high) / 2, nil
  local low, high = spread(of.low, of.high, (of.log or half > SMALLEST) and half or 1)
  if of.log then ticks = power_ticks(low, high, of.most) end
  if not ticks then
    local step
    ticks, step = linear_ticks(low, high, of.most)
    if of.whole and not of.log then
      low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
      ticks = linear_ticks(low, high, of.most + 1)
    end
  end
  local map = of.log and math.log or function(value) return value end
  local first, last = map(low), map(high)
  return {low = low, high = high, ticks = ticks,
          at = function(value) return (map(value) - first) / (last - first) end}
end

-- What a histogram shows on both sides of values that are all the same.
local function around_bin(value) return math.max(0.5, math.abs(value) / 1024) end

--- bins(low, high, most) -> the edges of at most about `most` bins of a round width that contain
--- [low, high], and a function that writes an edge.
function M.bins(low, high, most)
  low, high = spread(low, high, around_bin(high))
  local step = round_up((high - low) / most)
  local edges = {}
  for i = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) do
    edges[#edges + 1] = i * step
  end
  return edges, labels(step, math.max(math.abs(low), math.abs(high)))
end

--- equal_bins(low, high, count) -> the same for `count` bins of equal width.
function M.equal_bins(low, high, count)
  low, high = spread(low, high, around_bin(high))
  local edges = {}
  for i = 0, count do edges[i + 1] = low + (high - low) * i / count end
  edges[count + 1] = high
  return edges, labels((high - low) / count / 10, math.max(math.abs(low), math.abs(high)))
end

return M
