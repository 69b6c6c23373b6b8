-- What each key does: {key = function(editor)}, with Emacs' keys as in readline. A binding may
-- return its kind for the next key ("kill", "yank", "history" or "vertical"), or a request (see
-- editor.lua).
local search = require "repl.search"
local text_of = require "repl.text"

local bindings = {}

local function bind(keys, f)
  for key in keys:gmatch "%S+" do bindings[key] = f end
end

-- Moving ---------------------------------------------------------------------------------------

-- At the end of the text, accepts the hint; elsewhere moves.
local function accept_hint_or(move)
  return function(self)
    local hint = self:hint()
    if hint then return self:insert(hint) end
    move(self)
  end
end

bind("C-f right", accept_hint_or(function(self) self.at = text_of.next(self.text, self.at) end))
bind("C-b left", function(self) self.at = text_of.previous(self.text, self.at) end)
bind("M-f C-right M-right", function(self) self.at = text_of.word_end(self.text, self.at) end)
bind("M-b C-left M-left", function(self) self.at = text_of.word_start(self.text, self.at) end)

-- To the beginning or end of the line; from there, of the text.
bind("C-a home", function(self)
  local start = text_of.line_start(self.text, self.at)
  self.at = start == self.at and 0 or start
end)
bind("C-e end", accept_hint_or(function(self)
  local last = text_of.line_end(self.text, self.at)
  self.at = last == self.at and #self.text or last
end))
bind("C-home", function(self) self.at = 0 end)
bind("C-end", function(self) self.at = #self.text end)

-- A line up or down in the text; from its first or last line, to another entry of the history.
local function vertical(step)
  return function(self)
    local text, start = self.text, text_of.line_start(self.text, self.at)
    local last = text_of.line_end(text, self.at)
    local edge = step < 0 and start == 0 or step > 0 and last == #text
    if edge or self.last == "history" then return self:move_in_history(step) end
    if self.last ~= "vertical" then self.column = text_of.width(text:sub(start + 1, self.at)) end
    local from = step < 0 and text_of.line_start(text, start - 1) or last + 1
    self.at = text_of.fit(text, from, text_of.line_end(text, from), self.column)
    return "vertical"
  end
end
bind("C-p up", vertical(-1))
bind("C-n down", vertical(1))
bind("M-p page-up", function(self) return self:move_in_history(-1) end)
bind("M-n page-down", function(self) return self:move_in_history(1) end)
bind("M-<", function(self)
  self.draft = self.index and self.draft or self.text
  if #self.history.entries == 0 then return end
  self.index = 1
  self:set(self.history.entries[1])
end)
bind("M->", function(self)
  if self.index then self:set(self.draft) end
  self.index = nil
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

-- Consecutive kills form one.
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
bind("M-y", function(self)         -- replaces what was yanked by the previous kill
  if self.last ~= "yank" or #self.kills == 0 then return end
  self.turn = (self.turn - 2) % #self.kills + 1
  self:delete(self.at - self.yanked, self.at)
  self:insert(self.kills[self.turn])
  self.yanked = #self.kills[self.turn]
  return "yank"
end)

-- Changing -------------------------------------------------------------------------------------

bind("C-t", function(self)         -- swaps the characters around the cursor, or the last two
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

-- The rest -------------------------------------------------------------------------------------

bind("C-_", function(self) self:undo() end)
bind("enter", function(self) return self:enter() end)
bind("M-enter", function(self) self:new_line() end)
bind("tab", function(self) self:complete() end)
bind("C-r", function(self) search.start(self, -1) end)
bind("C-s", function(self) search.start(self, 1) end)
bind("C-c", function() return "interrupt" end)
bind("C-z", function() return "suspend" end)
bind("C-l", function() return "clear" end)
bind("M-e", function() return "edit" end)

return bindings
