-- What stands around the dots of a plot: title, axes with ticks and their labels, legend, notes.
local canvas = require "nn.plot.canvas"

local M = {}

-- The columns of a text of UTF-8 characters of one column each.
local function width_of(text) return select(2, text:gsub("[^\128-\191]", "")) end

local function centered(text, columns)
  return (" "):rep(math.max(0, math.floor((columns - width_of(text)) / 2))) .. text
end

--- label_width(scale) -> the columns of its longest label.
function M.label_width(scale)
  local most = 0
  for _, tick in ipairs(scale.ticks) do most = math.max(most, #tick.label) end
  return most
end

-- The x axis and its labels, as two lines; a label that has no room is not written.
local function x_axis(scale, columns, margin)
  local axis, labels = {}, ""
  for i = 1, columns do axis[i] = "─" end
  for _, tick in ipairs(scale.ticks) do
    local column = math.min(columns, math.floor(scale.at(tick.value) * (columns - 1) + 1.5))
    axis[column] = "┬"
    local start = margin + math.min(column - math.floor((#tick.label + 1) / 2),
                                    columns - #tick.label)
    if start > #labels or labels == "" then
      labels = labels .. (" "):rep(start - #labels) .. tick.label
    end
  end
  return (" "):rep(margin - 1) .. "└" .. table.concat(axis), labels
end

--- around(rows, frame) -> lines of the plot. rows: the lines of its canvas. frame: {x=, y=} scales,
--- columns: of the canvas; title, xlabel, ylabel (each may be nil); legend: names of the series, or
--- nil; notes: lines; look: see canvas.lines.
function M.around(rows, frame)
  local margin, lines = M.label_width(frame.y) + 2, {}
  local full = margin + frame.columns
  local function add(text) lines[#lines + 1] = text end
  local at = {}
  for _, tick in ipairs(frame.y.ticks) do
    at[#rows - math.floor((frame.y.at(tick.value) * (4 * #rows - 1) + 0.5) / 4)] = tick.label
  end
  if frame.title then add(centered(frame.title, full)) end
  if frame.ylabel then add((" "):rep(math.max(0, margin - 1 - width_of(frame.ylabel)))
                           .. frame.ylabel) end
  for i, row in ipairs(rows) do
    add(("%" .. margin - 2 .. "s %s%s"):format(at[i] or "", at[i] and "┤" or "│", row))
  end
  local axis, labels = x_axis(frame.x, frame.columns, margin)
  add(axis)
  add(labels)
  if frame.xlabel then add((" "):rep(margin) .. centered(frame.xlabel, frame.columns)) end
  local legend = {}
  for i, name in ipairs(frame.legend or {}) do
    legend[i] = canvas.sample(i, frame.look) .. " " .. name
  end
  if #legend > 0 then add((" "):rep(margin) .. table.concat(legend, "   ")) end
  for _, note in ipairs(frame.notes) do add(note) end
  return lines
end

return M
