-- Lays out the edited text: coloured rows no wider than the screen, and the cursor's position.
local text_of = require "repl.text"

local M = {}

local Rows = {}
Rows.__index = Rows

local function new_rows(columns, prompt)
  local self = setmetatable({list = {}, parts = {}, used = 0, columns = columns}, Rows)
  self:put(prompt.text, text_of.width(prompt.text), prompt.style)
  return self
end

function Rows:put(text, width, style)
  if self.used + width > self.columns then self:finish() end
  local parts = self.parts
  if style ~= self.style then
    if self.style then parts[#parts + 1] = "\27[0m" end
    if style then parts[#parts + 1] = "\27[" .. style .. "m" end
    self.style = style
  end
  parts[#parts + 1] = text
  self.used = self.used + width
end

function Rows:finish()
  if self.style then self.parts[#self.parts + 1] = "\27[0m" end
  self.list[#self.list + 1] = table.concat(self.parts)
  self.parts, self.used, self.style = {}, 0, nil
end

-- The cursor's position before what comes next; after a full row it is in the next one.
function Rows:position()
  if self.used == self.columns then self:finish() end
  return {row = #self.list + 1, column = self.used}
end

-- Rows of the prompt and the text, and the cursor.
local function text_rows(view)
  local rows, text, cursor, here, span = new_rows(view.columns, view.prompt), view.text, nil, 0, 1
  local spans = view.spans or {}
  while here < #text do
    if here == view.at then cursor = rows:position() end
    local after, width = text_of.next(text, here)
    local character = text:sub(here + 1, after)
    while spans[span] and spans[span].to <= here do span = span + 1 end
    if character:byte() == 10 then
      rows:finish()
      rows:put(view.prompt.more, text_of.width(view.prompt.more), "2")
    else
      local style = spans[span] and spans[span].from <= here + 1 and spans[span].style or nil
      rows:put(text_of.visible(character), math.min(width, view.columns), style)
    end
    here = after
  end
  return rows, cursor or rows:position()
end

--- columns_of(items, columns) -> lines with the items in columns, sorted downwards.
function M.columns_of(items, columns)
  local widest = 1
  for _, item in ipairs(items) do widest = math.max(widest, text_of.width(item) + 2) end
  local across = math.max(1, math.floor((columns + 1) / widest))
  local down = math.ceil(#items / across)
  local lines = {}
  for row = 1, down do
    local parts = {}
    for i = row, #items, down do
      local pad = i + down <= #items and widest - text_of.width(items[i]) or 0
      parts[#parts + 1] = text_of.clip(items[i], columns) .. (" "):rep(pad)
    end
    lines[row] = table.concat(parts)
  end
  return lines
end

-- Appends the lines under the text: as many as fit, and how many are left.
local function add_lines(rows, lines, room, style)
  for i, line in ipairs(lines) do
    local is_last = i == room and #lines > room
    if is_last then line = ("... %d more lines"):format(#lines - room + 1) end
    rows[#rows + 1] = style and ("\27[%sm%s\27[0m"):format(style, line) or line
    if is_last then return end
  end
end

-- The rows around the cursor that fit the screen.
local function window(rows, cursor, height)
  if #rows <= height then return rows, cursor end
  local first = math.max(1, math.min(cursor.row - math.floor(height / 2), #rows - height + 1))
  local shown = {}
  for i = 1, height do shown[i] = rows[first + i - 1] end
  return shown, {row = cursor.row - first + 1, column = cursor.column}
end

--- rows(view) -> list of rows, cursor {row=, column=}: the row from 1, the column from 0. view:
--- {prompt=, text=, at=, columns=, height=, spans=, hint=, below=, below_style=}. prompt: {text=,
--- style=, more=}, where `more` begins each further line; spans: see highlight.lua; `hint` follows
--- the text; `below` is a list of lines under it.
function M.rows(view)
  local out, cursor = text_rows(view)
  local hint, room = view.hint and view.hint:match "^[^\n]*", view.columns - out.used - 1
  if hint and hint ~= "" and room > 3 then
    hint = text_of.clip(hint, room)
    out:put(hint, text_of.width(hint), "2")
  end
  out:finish()
  local rows, at = window(out.list, cursor, view.height)
  if view.below and #rows < view.height then
    add_lines(rows, view.below, view.height - #rows, view.below_style)
  end
  return rows, at
end

return M
