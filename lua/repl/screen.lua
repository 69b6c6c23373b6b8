-- Brings rows onto a terminal below what is there, and changes them in place: only rows that differ
-- are written again. Makes the escape sequences; prompt.lua sends them.
local text_of = require "repl.text"

local M = {}
local Screen = {}
Screen.__index = Screen

--- new() -> screen, for input that begins in the first column of the cursor's line.
function M.new() return setmetatable({rows = {}, row = 1}, Screen) end

-- Appends the way from the cursor's row to another that is already there.
local function go(self, out, row)
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
        go(self, out, i - 1)
        out[#out + 1] = "\r\n"
        self.row = i
      end
      out[#out + 1] = "\r" .. row
    elseif old[i] ~= row then
      go(self, out, i)
      out[#out + 1] = "\r\27[K" .. row
    end
  end
  if #rows < #old then
    go(self, out, #rows + 1)
    out[#out + 1] = "\r\27[J"
  end
  go(self, out, cursor.row)
  out[#out + 1] = cursor.column > 0 and ("\r\27[%dC"):format(cursor.column) or "\r"
  self.rows = {unpack(rows)}
  return table.concat(out)
end

--- screen:leave() -> what to write so that what follows comes under the rows.
function Screen:leave()
  local out = {}
  go(self, out, math.max(1, #self.rows))
  out[#out + 1] = "\r\n"
  self.rows, self.row = {}, 1
  return table.concat(out)
end

--- screen:resized(columns) -> what to write before painting anew on a terminal that now has so many
--- columns and has wrapped the rows that became too long.
function Screen:resized(columns)
  local up = 0
  for i, row in ipairs(self.rows) do
    local lines = math.max(1, math.ceil(text_of.width(row) / columns))
    if i < self.row then up = up + lines end
  end
  self.rows, self.row = {}, 1
  return (up > 0 and ("\27[%dA"):format(up) or "") .. "\r\27[J"
end

return M
