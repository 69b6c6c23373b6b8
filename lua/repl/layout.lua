-- Where the text that is being edited goes on the screen: rows with colours, no wider than the
-- screen, and the cursor among them.
local text_of = require "repl.text"

local M = {}

local function styled(text, style)
  return style and style ~= "" and ("\27[%sm%s\27[0m"):format(style, text) or text
end
M.styled = styled

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

-- The cursor's place before what comes next; behind a full row that is the next one.
function Rows:here()
  if self.used == self.columns then self:finish() end
  return {row = #self.list + 1, column = self.used}
end

--- text(prompt, text, at, columns, spans) -> rows, cursor. prompt: {text=, style=, more=}, where
--- `more` begins each further line. spans: see highlight.lua. cursor: {row=, column=}, the row from
--- 1, the column from 0.
function M.text(prompt, text, at, columns, spans)
  local rows, cursor, here, span = new_rows(columns, prompt), nil, 0, 1
  spans = spans or {}
  while here < #text do
    if here == at then cursor = rows:here() end
    local behind, width = text_of.next(text, here)
    local character = text:sub(here + 1, behind)
    while spans[span] and spans[span].to <= here do span = span + 1 end
    if character:byte() == 10 then
      rows:finish()
      rows:put(prompt.more, text_of.width(prompt.more), "2")
    else
      local style = spans[span] and spans[span].from <= here + 1 and spans[span].style or nil
      rows:put(text_of.visible(character), math.min(width, columns), style)
    end
    here = behind
  end
  cursor = cursor or rows:here()
  return rows, cursor
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

-- Lines under the text: as many as there is room for, and how many are left.
local function add_lines(rows, lines, room, style)
  for i, line in ipairs(lines) do
    if i == room and #lines > room then
      rows[#rows + 1] = styled(("... %d more lines"):format(#lines - room + 1), style)
      return
    end
    rows[#rows + 1] = styled(line, style)
  end
end

-- As many rows as the screen has, the cursor's among them.
local function window(rows, cursor, height)
  if #rows <= height then return rows, cursor end
  local first = math.max(1, math.min(cursor.row - math.floor(height / 2), #rows - height + 1))
  local shown = {}
  for i = 1, height do shown[i] = rows[first + i - 1] end
  return shown, {row = cursor.row - first + 1, column = cursor.column}
end

--- rows(view) -> list of rows, cursor. view: {prompt=, text=, at=, columns=, height=, spans=,
--- hint=, below=, below_style=}: `hint` follows the text, `below` is a list of lines under it.
function M.rows(view)
  local out, cursor = M.text(view.prompt, view.text, view.at, view.columns, view.spans)
  local hint = view.hint and view.hint:match "^[^\n]*"
  if hint and hint ~= "" then
    local room = view.columns - out.used - 1
    hint = room > 3 and text_of.clip(hint, room) or ""
    out:put(hint, text_of.width(hint), "2")
  end
  out:finish()
  local rows, at = window(out.list, cursor, view.height)
  if view.below and #view.below > 0 and #rows < view.height then
    add_lines(rows, view.below, view.height - #rows, view.below_style)
  end
  return rows, at
end

return M
