-- Draws rows on a terminal below what is there and updates them: writes only rows that changed.
-- Makes the escape sequences; prompt.lua sends them.
local text_of = require "repl.text"

local M = {}
local Screen = {}
Screen.__index = Screen

--- new() -> screen, for input that begins in the first column of the cursor's line.
function M.new() return setmetatable({rows = {}, row = 1}, Screen) end

-- Appends the move from the cursor's row to another row on the screen.
local function move(self, out, row)
  local distance = row - self.row
  if distance > 0 then out[#out + 1] = ("\27[%dB"):format(distance) end
  if distance < 0 then out[#out + 1] = ("\27[%dA"):format(-distance) end
  self.row = row
end

--- screen:paint(rows, cursor) -> what to write so that the terminal shows these.
function Screen:paint(rows, cursor)
  local out, old = {}, self.rows
  for i, row in ipairs(rows) do
    if not old[i] then
      if i > 1 then
        move(self, out, i - 1)
        out[#out + 1] = "\r\n"
        self.row = i
      end
      out[#out + 1] = "\r" .. row
    elseif old[i] ~= row then
      move(self, out, i)
      out[#out + 1] = "\r\27[K" .. row
    end
  end
  if #rows < #old then
    move(self, out, #rows + 1)
    out[#out + 1] = "\r\27[J"
  end
  move(self, out, cursor.row)
  out[#out + 1] = cursor.column > 0 and ("\r\27[%dC"):format(cursor.column) or "\r"
  self.rows = {unpack(rows)}
  return table.concat(out)
end

--- screen:leave() -> what to write so that further output appears under the rows.
function Screen:leave()
  local out = {}
  move(self, out, math.max(1, #self.rows))
  out[#out + 1] = "\r\n"
  self.rows, self.row = {}, 1
  return table.concat(out)
end

--- screen:resized(columns) -> what to write before painting again on a terminal of a new width,
--- which has wrapped the rows that are now too long.
function Screen:resized(columns)
  local up = 0
  for i = 1, math.min(self.row - 1, #self.rows) do
    up = up + math.max(1, math.ceil(text_of.width(self.rows[i]) / columns))
  end
  self.rows, self.row = {}, 1
  return (up > 0 and ("\27[%dA"):format(up) or "") .. "\r\27[J"
end

return M
