-- The line editor as a state machine: keys in (see keys.lua), text and cursor out. It touches no
-- terminal; prompt.lua shows its state and does what the results of key() ask for.
local key_bindings = require "repl.key_bindings"
local search = require "repl.search"
local text_of = require "repl.text"

local M = {}
local Editor = {}
Editor.__index = Editor

--- new{history=, unfinished=, complete=, indent=} -> editor. history: see history.lua;
--- unfinished(text): whether Enter starts a new line; complete(text, at): see complete.lua; indent:
--- see indent.lua, or nil for a text whose lines are not indented.
function M.new(options)
  local self = setmetatable({options = options, history = options.history, kills = {}}, Editor)
  self:start()
  return self
end

--- editor:start(): clears the text, but not what was killed.
function Editor:start()
  self.text, self.at = "", 0
  self.undos, self.index, self.draft = {}, nil, nil
  self.search, self.list, self.last = nil, nil, nil
end

--- editor:set(text, at): replaces the text; `at`: the cursor, by default the end.
function Editor:set(text, at) self.text, self.at = text, at or #text end

--- editor:insert(piece) at the cursor.
function Editor:insert(piece)
  self:set(self.text:sub(1, self.at) .. piece .. self.text:sub(self.at + 1), self.at + #piece)
end

--- editor:delete(from, to): the bytes between two offsets; the cursor moves there.
function Editor:delete(from, to)
  self:set(self.text:sub(1, from) .. self.text:sub(to + 1), from)
end

-- A paste without control characters, copied prompts and the last newline.
local function pasted(text)
  text = text:gsub("\r\n?", "\n"):gsub("\n$", ""):gsub("[%z\1-\8\11-\31\127]", "")
  if not text:find "^nn> " then return text end
  local lines, inside = {}, false
  for _, line in ipairs(text_of.lines(text)) do
    local first, more = line:match "^nn> (.*)", line:match "^    (.*)" or line:match "^  > (.*)"
    inside = first ~= nil or inside and more ~= nil
    if inside then lines[#lines + 1] = first or more end
  end
  return table.concat(lines, "\n")
end

function Editor:new_line()
  local indent = self.options.indent
  if not indent then return self:insert "\n" end
  self:set(indent.close(self.text, self.at))
  self:insert("\n" .. (" "):rep(indent.new_line(self.text, self.at)))
end

function Editor:enter()
  if self.text:find "%S" and self.options.unfinished(self.text) then return self:new_line() end
  local indent = self.options.indent
  self:set(indent and indent.close(self.text, #self.text) or self.text)
  return "submit"
end

local function common_start(items)
  local start = items[1]
  for _, item in ipairs(items) do
    while item:sub(1, #start) ~= start do start = start:sub(1, #start - 1) end
  end
  return start
end

function Editor:complete()
  local line = self.text:sub(text_of.line_start(self.text, self.at) + 1, self.at)
  if not line:find "%S" then return self:insert "  " end
  local found = self.options.complete(self.text, self.at)
  local items = found.items
  if #items == 0 then
    self.note = found.note
    return
  end
  local start = common_start(items)
  if #items > 1 and #start <= self.at - found.from then
    self.list = items
    return
  end
  self:delete(found.from, self.at)
  self:insert(start .. (#items == 1 and found.suffix or ""))
end

--- editor:move_in_history(step): shows the previous (-1) or next (1) entry that starts with the
--- text before the cursor; after the newest entry, the user's own text.
function Editor:move_in_history(step)
  local entries = self.history.entries
  if self.last ~= "history" then
    self.start_of_entry = self.text:sub(1, self.at)
    if not self.index then self.draft = self.text end
  end
  local start = self.start_of_entry
  local index = self.history:find(self.index or #entries + 1, step, function(entry)
    return entry:sub(1, #start) == start and entry ~= self.text
  end)
  if index then
    self:set(entries[index])
  elseif step > 0 and self.index then
    self:set(self.draft)
  else
    index = self.index
  end
  self.index = index
  return "history"
end

-- One step of undo is a word that was typed, or another change.
local function note_undo(self, before, at, kind)
  if self.text == before then return end
  local word = kind == "text" and self.last == "text" and not self.text:find("^%s", self.at)
  if not word then self.undos[#self.undos + 1] = {before, at} end
end

function Editor:undo()
  local state = table.remove(self.undos)
  if state then self:set(state[1], state[2]) end
end

local requests = {submit = true, eof = true, interrupt = true, suspend = true, clear = true,
                  edit = true}

-- Does what a key means. Returns a request to the caller or nil, and the kind of the key, which the
-- next key may ask for. A binding returns either.
local function act(self, key)
  if type(key) == "table" then
    self:insert(key[1] == "paste" and pasted(key[2]) or key[2])
    return nil, key[1]
  end
  local binding = key_bindings[key]
  local result = binding and binding(self)
  if requests[result] then return result end
  return nil, result or "other"
end

--- editor:key(key) -> nil, or a request to the caller: "submit", "eof", "interrupt", "suspend",
--- "clear" (the screen), "edit" (the text in another editor).
function Editor:key(key)
  self.list, self.note = nil, nil
  if self.search then
    key = search.key(self, key)
    if not key then return nil end
  end
  local before, at = self.text, self.at
  local request, kind = act(self, key)
  local start = text_of.previous(self.text, self.at)
  if self.at > 0 then self.at = text_of.next(self.text, start) end     -- never inside a character
  if key ~= "C-_" then note_undo(self, before, at, kind) end
  self.last = kind
  return request
end

--- editor:hint() -> the rest of the newest entry that starts with the text, while the cursor is at
--- the end.
function Editor:hint()
  local text = self.text
  if text == "" or self.at < #text or self.search or self.index then return nil end
  local index = self.history:find(#self.history.entries + 1, -1, function(entry)
    return #entry > #text and entry:sub(1, #text) == text
  end)
  return index and self.history.entries[index]:sub(#text + 1)
end

return M
