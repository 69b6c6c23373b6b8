-- nn.histogram: how often values occur, as bars in the terminal.
local arguments = require "nn.base.arguments"
local canvas = require "nn.plot.canvas"
local scales = require "nn.plot.scale"
local series = require "nn.plot.series"
local terminal = require "nn.base.terminal"

local M = {}
local Histogram = {type_name = "histogram"}
Histogram.__index = Histogram

local known = arguments.names "bins title width"
local MOST_BINS, WIDEST, NARROWEST = 15, 80, 20
local eighths = {"▏", "▎", "▍", "▌", "▋", "▊", "▉"}

-- The range of the finite values (nil if there are none), and the number of the others.
local function range_of(array, count)
  local low, high, hidden = math.huge, -math.huge, 0
  for i = 0, count - 1 do
    local value = array[i]
    if scales.is_shown(value) then
      low, high = math.min(low, value), math.max(high, value)
    else
      hidden = hidden + 1
    end
  end
  if low <= high then return low, high, hidden end
  return nil, nil, hidden
end

-- The number of values in each bin [edge, next edge); the last bin contains its upper edge.
local function count_values(array, count, edges)
  local counts, bins = {}, #edges - 1
  for i = 1, bins do counts[i] = 0 end
  local low, step = edges[1], (edges[#edges] - edges[1]) / bins
  for i = 0, count - 1 do
    local value = array[i]
    if value >= low and value <= edges[#edges] then
      local bin = math.min(bins, math.floor((value - low) / step) + 1)
      if value < edges[bin] then bin = bin - 1 end               -- the division was rounded
      if bin < bins and value >= edges[bin + 1] then bin = bin + 1 end
      counts[bin] = counts[bin] + 1
    end
  end
  return counts
end

-- A bar of `size` characters, a number with a fraction; at least a mark if there is a value.
local function bar(size, is_empty)
  local full = math.floor(size)
  local part = math.floor((size - full) * 8)
  if full == 0 and part == 0 and not is_empty then part = 1 end
  return ("█"):rep(full) .. (eighths[part] or "")
end

--- histogram:lines() -> its lines: for each bin its edges, a bar, and the number of its values.
function Histogram:lines()
  local most, widest, names = 0, 0, {}
  for i, count in ipairs(self.counts) do
    most = math.max(most, count)
    names[i] = self.label(self.edges[i])
  end
  names[#names + 1] = self.label(self.edges[#self.edges])
  for _, name in ipairs(names) do widest = math.max(widest, #name) end
  local lines = {self.title}
  local width = self.width or math.max(NARROWEST, math.min((terminal.size()) - 1, WIDEST))
  local room = math.max(1, width - 2 * widest - #tostring(most) - 7)
  local look = {color = terminal.has_colors(1)}
  for i, count in ipairs(self.counts) do
    lines[#lines + 1] = ("[%" .. widest .. "s, %" .. widest .. "s%s %s %d"):format(
      names[i], names[i + 1], i < #self.counts and ")" or "]",
      canvas.style(bar(count / most * room, count == 0), 1, look), count)
  end
  if self.hidden > 0 then
    lines[#lines + 1] = ("%d of %d values not shown (NaN, infinite)"):format(self.hidden,
                                                                             self.total)
  end
  return lines
end

function Histogram:__tostring() return table.concat(self:lines(), "\n") end

--- nn.histogram(values, {bins, title, width}) -> a histogram, which prints as bars. values: a
--- tensor of any shape, or a list of numbers. bins: the number of bins, from the smallest to the
--- largest value; without it, at most about 15 with round edges. Its fields: counts and edges
--- (lists), and hidden, the number of values that are NaN or infinite. Errors: other values.
---     nn.histogram({1, 2, 2, 4}, {bins = 3}).counts  --> {1, 2, 1}
function M.histogram(values, options)
  options = arguments.options("histogram", options, known)
  local bins, title, width = options.bins, options.title, options.width
  if bins ~= nil then arguments.whole("histogram", "bins", bins, 1, 1e4) end
  if width ~= nil then arguments.whole("histogram", "width", width, NARROWEST) end
  arguments.need(title == nil or type(title) == "string", "histogram", "title", title,
                 "a text is needed")
  local array, count = series.numbers("histogram", "the argument", values, true)
  local low, high, hidden = range_of(array, count)
  local edges, label = {}, tostring
  if low and bins then edges, label = scales.equal_bins(low, high, bins) end
  if low and not bins then edges, label = scales.bins(low, high, MOST_BINS) end
  return setmetatable({counts = low and count_values(array, count, edges) or {}, edges = edges,
                       label = label, title = title, width = width, hidden = hidden,
                       total = count}, Histogram)
end

return M
