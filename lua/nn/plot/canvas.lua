-- Dots on a grid of characters: braille, eight dots per character, each character in the colour of
-- the series drawn last; without colours several series have markers of their own.
local ffi = require "ffi"
local utf8 = require "nn.base.utf8"

local M = {}
local Canvas = {}
Canvas.__index = Canvas

local colors = {36, 33, 35, 32, 34, 31}
local markers = {"*", "+", "x", "o", "#", "@"}
-- Bits of the dots of a braille character, from the top: left column, right column.
local bits = ffi.new("uint8_t[2][4]", {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}})

--- new(columns, rows) -> an empty canvas of so many characters: 2 * columns by 4 * rows dots.
function M.new(columns, rows)
  return setmetatable({columns = columns, rows = rows, width = 2 * columns, height = 4 * rows,
                       cells = ffi.new("uint8_t[?]", columns * rows),
                       owner = ffi.new("uint8_t[?]", columns * rows)}, Canvas)
end

--- canvas:dot(x, y, series): sets a dot; x, y: whole numbers from 0, at the top left.
function Canvas:dot(x, y, series)
  local cell = math.floor(y / 4) * self.columns + math.floor(x / 2)
  self.cells[cell] = bit.bor(self.cells[cell], bits[x % 2][y % 4])
  self.owner[cell] = series
end

--- canvas:line(x1, y1, x2, y2, series): sets the dots between two.
function Canvas:line(x1, y1, x2, y2, series)
  local steps = math.max(math.abs(x2 - x1), math.abs(y2 - y1), 1)
  for i = 0, steps do
    self:dot(math.floor(x1 + (x2 - x1) * i / steps + 0.5),
             math.floor(y1 + (y2 - y1) * i / steps + 0.5), series)
  end
end

--- style(text, series, look) -> the text in the colour of a series. look: see lines().
function M.style(text, series, look)
  if not look.color then return text end
  return ("\27[%dm%s\27[0m"):format(colors[(series - 1) % #colors + 1], text)
end

--- sample(series, look) -> how a legend shows a series: as lines() draws it.
function M.sample(series, look)
  local mark = look.marks and markers[(series - 1) % #markers + 1] or "━━"
  return M.style(mark, series, look)
end

--- canvas:lines(look) -> its rows as texts. look: {color=, marks=}: whether to write colours, and
--- whether to write the marker of a series instead of dots.
function Canvas:lines(look)
  local out = {}
  for row = 1, self.rows do
    local parts, current = {}, 0
    for column = 1, self.columns do
      local cell = (row - 1) * self.columns + column - 1
      local dots, series = self.cells[cell], self.owner[cell]
      if look.color and series ~= current and dots > 0 then
        parts[#parts + 1] = ("\27[%dm"):format(colors[(series - 1) % #colors + 1])
        current = series
      end
      parts[#parts + 1] = dots == 0 and " "
        or look.marks and markers[(series - 1) % #markers + 1] or utf8.encode(0x2800 + dots)
    end
    out[row] = (table.concat(parts):gsub(" +$", "")) .. (current > 0 and "\27[0m" or "")
  end
  return out
end

return M
