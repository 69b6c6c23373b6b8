-- Draws a curve as text: braille dots, eight per character, with the range on the left.
local ffi = require "ffi"

local M = {}

local function utf8(code)
  return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64,
                     0x80 + code % 64)
end

-- Bits of the dots of a braille character, from the top: left column, right column.
local dots = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}

-- The means of `columns` equal sections of the values.
local function means(values, columns)
  local out = {}
  for column = 1, columns do
    local first = math.floor((column - 1) * #values / columns) + 1
    local last = math.max(first, math.floor(column * #values / columns))
    local sum = 0
    for i = first, last do sum = sum + values[i] end
    out[column] = sum / (last - first + 1)
  end
  return out
end

local function range(values)
  local low, high = math.huge, -math.huge
  for _, value in ipairs(values) do low, high = math.min(low, value), math.max(high, value) end
  if low == high then return low - 0.5, high + 0.5 end
  return low, high
end

local FEWEST = 4      -- the fewest values to draw

--- draw(values, width, height) -> `height` lines of `width` characters, or nil if there are too few
--- values. The first line shows the highest value, the last line the lowest one.
function M.draw(values, width, height)
  if #values < FEWEST then return nil end
  local margin = 9
  local columns, rows = 2 * (width - margin), 4 * height
  local points = means(values, columns)
  local low, high = range(points)
  local cells = ffi.new("uint8_t[?]", (width - margin) * height)
  local before
  for column, value in ipairs(points) do
    local row = math.floor((high - value) / (high - low) * (rows - 1) + 0.5)
    local from = before and (before < row and before + 1 or before > row and before - 1) or row
    for at = math.min(from, row), math.max(from, row) do
      local cell = math.floor(at / 4) * (width - margin) + math.floor((column - 1) / 2)
      cells[cell] = bit.bor(cells[cell], dots[(column - 1) % 2 + 1][at % 4 + 1])
    end
    before = row
  end
  local lines = {}
  for row = 1, height do
    local label = row == 1 and ("%.4g"):format(high) or row == height and ("%.4g"):format(low) or ""
    local parts = {("%" .. (margin - 2) .. "s  "):format(label)}
    for column = 1, width - margin do
      parts[#parts + 1] = utf8(0x2800 + cells[(row - 1) * (width - margin) + column - 1])
    end
    lines[row] = table.concat(parts)
  end
  return lines
end

return M
