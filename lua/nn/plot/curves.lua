-- nn.plot: curves and points in the terminal.
local arguments = require "nn.base.arguments"
local canvas = require "nn.plot.canvas"
local frame = require "nn.plot.frame"
local lib = require "nn.base.capi"
local scales = require "nn.plot.scale"
local series = require "nn.plot.series"
local terminal = require "nn.base.terminal"

local M = {}
local Plot = {type_name = "plot"}
Plot.__index = Plot

local known = arguments.names "width height title xlabel ylabel log points"
local WIDEST, HIGHEST = 100, 15          -- characters, unless options are given
local NARROWEST, LOWEST = 20, 3

local function checked(options)
  for _, name in ipairs {"title", "xlabel", "ylabel"} do
    local value = options[name]
    arguments.need(value == nil or type(value) == "string", "plot", name, value, "a text is needed")
  end
  if options.width ~= nil then arguments.whole("plot", "width", options.width, NARROWEST) end
  if options.height ~= nil then arguments.whole("plot", "height", options.height, LOWEST) end
  local log = options.log
  if log == true then log = "y" end
  arguments.need(not log or log == "x" or log == "y" or log == "xy", "plot", "log", log,
                 'true, "x", "y" or "xy" is needed')
  options.log_x = log and log:find "x" ~= nil
  options.log_y = log and log:find "y" ~= nil
  return options
end

local function x_of(s, i) return s.x and s.x[i] or i + 1 end

local function widen(range, x, y)
  range.x1, range.x2 = math.min(range.x1, x), math.max(range.x2, x)
  range.y1, range.y2 = math.min(range.y1, y), math.max(range.y2, y)
end

-- The range of all shown points, nil if there are none; and the number of the others by series.
local function range_of(self)
  local range, hidden = {x1 = math.huge, x2 = -math.huge, y1 = math.huge, y2 = -math.huge}, {}
  for k, s in ipairs(self.series) do
    hidden[k] = 0
    for i = 0, s.count - 1 do
      local x, y = x_of(s, i), s.y[i]
      if scales.is_shown(x, self.log_x) and scales.is_shown(y, self.log_y) then
        widen(range, x, y)
      else
        hidden[k] = hidden[k] + 1
      end
    end
  end
  return range.x1 <= range.x2 and range or nil, hidden
end

-- Draws a series: lines between neighbours, or only its points. A hidden point interrupts the line.
local function draw(self, board, s, number, x_scale, y_scale)
  local before_x, before_y
  for i = 0, s.count - 1 do
    local x, y = x_of(s, i), s.y[i]
    if scales.is_shown(x, self.log_x) and scales.is_shown(y, self.log_y) then
      local column = math.floor(x_scale.at(x) * (board.width - 1) + 0.5)
      local row = math.floor((1 - y_scale.at(y)) * (board.height - 1) + 0.5)
      if before_x and not self.points then
        board:line(before_x, before_y, column, row, number)
      else
        board:dot(column, row, number)
      end
      before_x, before_y = column, row
    else
      before_x = nil
    end
  end
end

local function notes_of(self, hidden)
  local notes = {}
  for k, s in ipairs(self.series) do
    if hidden[k] > 0 then
      notes[#notes + 1] = ("%s%d of %d values not shown (NaN, infinite%s)"):format(
        s.name and s.name .. ": " or "", hidden[k], s.count,
        (self.log_x or self.log_y) and ", or not above 0 on a log scale" or "")
    end
  end
  return notes
end

--- plot:lines() -> its lines, as wide and high as its options say, or else as fit the terminal.
function Plot:lines()
  local range, hidden = range_of(self)
  local notes = notes_of(self, hidden)
  if not range then return {"a plot without values", unpack(notes)} end
  local columns, rows = terminal.size()
  local width = self.width or math.max(NARROWEST, math.min(columns - 1, WIDEST))
  local height = self.height or math.max(LOWEST, math.min(rows - 8, HIGHEST))
  local y_scale = scales.new {low = range.y1, high = range.y2, log = self.log_y, whole = true,
                              most = math.max(2, math.floor(height / 2))}
  local room = math.max(1, width - frame.label_width(y_scale) - 2)
  local x_scale = scales.new {low = range.x1, high = range.x2, log = self.log_x,
                              most = math.max(2, math.floor(room / 10))}
  local board, names = canvas.new(room, height), {}
  for i, s in ipairs(self.series) do
    draw(self, board, s, i, x_scale, y_scale)
    names[i] = s.name
  end
  local color = terminal.has_colors(1)
  local look = {color = color, marks = not color and #self.series > 1}
  return frame.around(board:lines(look), {
    x = x_scale, y = y_scale, columns = room, title = self.title, xlabel = self.xlabel,
    ylabel = self.ylabel, legend = names, notes = notes, look = look})
end

function Plot:__tostring() return table.concat(self:lines(), "\n") end

--- nn.plot(y), nn.plot(x, y), nn.plot{train = y1, val = y2}, nn.plot(x, {train = y1, val = y2})
--- -> a plot, which prints as curves of braille dots, with axes and, of several curves, a legend.
--- Values are tensors of one axis or lists of numbers; a named one may be a pair {x, y} of them.
--- Without x, it counts from 1. A last table has options: width and height in characters
--- (default: to fit the terminal), title, xlabel, ylabel, log (true or "y", "x", "xy": logarithmic
--- axes), points (true: points without lines). Values that are NaN or infinite interrupt the curve;
--- a line below says how many. Without colours (NO_COLOR, no terminal), several curves have
--- different marks. Errors: other values, or other numbers of x and y.
---     tostring(nn.plot({1, 3, 2}, {width = 20, height = 3, title = "loss"})):match "%a+"  --> loss
function M.plot(...)
  if select("#", ...) == 0 or select("#", ...) > 3 then
    lib.misuse "plot: plot(y), plot(x, y) or plot{name = y, ...}, and options, are needed"
  end
  local list, options = series.read(known, ...)
  local self = setmetatable({series = list}, Plot)
  for name, value in pairs(checked(options)) do self[name] = value end
  return self
end

return M
