-- What keys do: moving, killing and yanking, case, history. Emacs' names, as in readline. A binding
-- returns "kill", "yank", "history" or "vertical" where the next key wants to know, or what
-- editor.lua is to ask for.
local search = require "repl.search"
local text_of = require "repl.text"

local M = {}
local bindings = {}
M.bindings = bindings

local function bind(keys, f)
  for key in keys:gmatch "%S+" do bindings[key] = f end
end

-- Moving ---------------------------------------------------------------------------------------

bind("C-f right", function(self)
  local hint = self:hint()
  if hint and self.at == #self.text then return self:insert(hint) end
  self.at = text_of.next(self.text, self.at)
end)
bind("C-b left", function(self) self.at = text_of.previous(self.text, self.at) end)
bind("M-f C-right M-right", function(self) self.at = text_of.word_end(self.text, self.at) end)
bind("M-b C-left M-left", function(self) self.at = text_of.word_start(self.text, self.at) end)

-- The line's beginning or end; from there, the text's.
bind("C-a home", function(self)
  local start = text_of.line_start(self.text, self.at)
  self.at = start == self.at and 0 or start
end)
bind("C-e end", function(self)
  local hint = self:hint()
  if hint and self.at == #self.text then return self:insert(hint) end
  local last = text_of.line_end(self.text, self.at)
  self.at = last == self.at and #self.text or last
end)
bind("C-home", function(self) self.at = 0 end)
bind("C-end", function(self) self.at = #self.text end)

-- Columns from a line's beginning to an offset, and back.
local function column_of(text, start, at) return text_of.width(text:sub(start + 1, at)) end
local function at_column(text, start, column)
  local last, at, used = text_of.line_end(text, start), start, 0
  while at < last do
    local behind, width = text_of.next(text, at)
    if used + width > column then break end
    at, used = behind, used + width
  end
  return at
end

-- A line up or down in a text of several; from its first or last line on, in the history.
local function vertical(step)
  return function(self)
    local text, start = self.text, text_of.line_start(self.text, self.at)
    local last = text_of.line_end(text, self.at)
    local edge = step < 0 and start == 0 or step > 0 and last == #text
    if edge or self.last == "history" then return self:go_history(step) end
    if self.last ~= "vertical" then self.column = column_of(text, start, self.at) end
    local line = step < 0 and text_of.line_start(text, start - 1) or last + 1
    self.at = at_column(text, line, self.column)
    return "vertical"
  end
end
bind("C-p up", vertical(-1))
bind("C-n down", vertical(1))
bind("M-p page-up", function(self) return self:go_history(-1) end)
bind("M-n page-down", function(self) return self:go_history(1) end)
bind("M-<", function(self)
  self.draft = self.place and self.draft or self.text
  local first = self.history.entries[1]
  if first then
    self.place = 1
    self:set(first)
  end
end)
bind("M->", function(self)
  if self.place then self:set(self.draft) end
  self.place = nil
end)

-- Deleting and killing -------------------------------------------------------------------------

bind("backspace", function(self)
  local line = text_of.line_start(self.text, self.at)
  local before = self.text:sub(line + 1, self.at)
  local from = text_of.previous(self.text, self.at)
  if #before >= 2 and not before:find "[^ ]" then from = self.at - (#before % 2 == 0 and 2 or 1) end
  self:delete(from, self.at)
end)
local function delete(self) self:delete(self.at, (text_of.next(self.text, self.at))) end
bind("delete", delete)
bind("C-d", function(self)
  if self.text == "" then return "eof" end
  return delete(self)
end)

-- Kills that follow each other are one.
local function kill(self, from, to)
  local piece, backwards = self.text:sub(from + 1, to), from < self.at
  if self.last == "kill" and #self.kills > 0 then
    local newest = self.kills[#self.kills]
    self.kills[#self.kills] = backwards and piece .. newest or newest .. piece
  elseif piece ~= "" then
    self.kills[#self.kills + 1] = piece
    if #self.kills > 60 then table.remove(self.kills, 1) end
  end
  self:delete(from, to)
  return "kill"
end

bind("C-k", function(self)
  local last = text_of.line_end(self.text, self.at)
  return kill(self, self.at, last == self.at and math.min(last + 1, #self.text) or last)
end)
bind("C-u", function(self)
  local start = text_of.line_start(self.text, self.at)
  return kill(self, start == self.at and math.max(0, start - 1) or start, self.at)
end)
bind("C-w", function(self)
  local from = self.at
  while from > 0 and self.text:find("^%s", from) do from = from - 1 end
  while from > 0 and not self.text:find("^%s", from) do from = from - 1 end
  return kill(self, from, self.at)
end)
bind("M-backspace C-backspace", function(self)
  return kill(self, text_of.word_start(self.text, self.at), self.at)
end)
bind("M-d C-delete M-delete", function(self)
  return kill(self, self.at, text_of.word_end(self.text, self.at))
end)
bind("C-y", function(self)
  local piece = self.kills[#self.kills] or ""
  self:insert(piece)
  self.yanked, self.turn = #piece, #self.kills
  return "yank"
end)
bind("M-y", function(self)         -- what was yanked becomes the kill before it
  if self.last ~= "yank" or #self.kills == 0 then return end
  self.turn = (self.turn - 2) % #self.kills + 1
  self:delete(self.at - self.yanked, self.at)
  self:insert(self.kills[self.turn])
  self.yanked = #self.kills[self.turn]
  return "yank"
end)

-- Changing -------------------------------------------------------------------------------------

bind("C-t", function(self)         -- the two characters around the cursor, or the last two
  local text, middle = self.text, self.at
  if middle == #text then middle = text_of.previous(text, middle) end
  local from, to = text_of.previous(text, middle), text_of.next(text, middle)
  if from == middle or to == middle then return end
  self:set(text:sub(1, from) .. text:sub(middle + 1, to) .. text:sub(from + 1, middle)
           .. text:sub(to + 1), to)
end)
local function change_word(change)
  return function(self)
    local to = text_of.word_end(self.text, self.at)
    local word = self.text:sub(self.at + 1, to)
    self:set(self.text:sub(1, self.at) .. change(word) .. self.text:sub(to + 1), to)
  end
end
bind("M-u", change_word(string.upper))
bind("M-l", change_word(string.lower))
bind("M-c", change_word(function(word)
  return (word:lower():gsub("%a", string.upper, 1))
end))
bind("C-_", function(self) self:undo() end)

-- The rest -------------------------------------------------------------------------------------

bind("enter", function(self) return self:enter() end)
bind("M-enter", function(self) self:new_line() end)
bind("tab", function(self) self:complete() end)
bind("C-r", function(self) search.start(self, -1) end)
bind("C-s", function(self) search.start(self, 1) end)
bind("C-c", function() return "interrupt" end)
bind("C-z", function() return "suspend" end)
bind("C-l", function() return "clear" end)
bind("M-e", function() return "edit" end)

return M
