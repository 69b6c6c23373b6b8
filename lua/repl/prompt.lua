-- Reads one input from a terminal: sends keys to the editor, shows its state on the screen.
local files = require "nn.io.files"
local highlight = require "repl.highlight"
local keys = require "repl.keys"
local layout = require "repl.layout"
local screens = require "repl.screen"
local sizes = require "nn.base.terminal"
local text_of = require "repl.text"
local tty = require "repl.tty"

local M = {}
local Prompt = {}
Prompt.__index = Prompt

--- new(editor, interrupted, look) -> prompt. interrupted(): whether a signal asks to stop. look:
--- {text=, more=, modes=, spans=}: what stands before the first line and before others, of one
--- width; the styles (see highlight.lua) that the first character of the input selects; and
--- spans(text, at), which colours the text, or nil.
function M.new(editor, interrupted, look)
  return setmetatable({editor = editor, interrupted = interrupted, decoder = keys.decoder(),
                       look = look, colors = sizes.has_colors(1), queue = {}}, Prompt)
end

-- Lines under the text: the search, the completions or a note.
local function below_of(editor, columns)
  local s = editor.search
  if s then
    local direction = s.step < 0 and "search back" or "search forward"
    local line = ("%s%s: %s"):format(s.failed and "no match, " or "", direction, s.query)
    return {text_of.clip(line, columns)}
  end
  if editor.list then return layout.columns_of(editor.list, columns) end
  return editor.note and text_of.wrap(editor.note, columns)
end

-- The mode that the first character of the input selects, or nil.
function Prompt:mode() return self.look.modes[self.editor.text:match "^%s*(%p)" or ""] end

function Prompt:spans()
  local editor, spans = self.editor, self.look.spans
  local s, mode = editor.search, self:mode()
  if s and s.from then return {{from = s.from, to = s.to, style = highlight.styles.match}} end
  if spans and mode ~= "help" and mode ~= "shell" then return spans(editor.text, editor.at) end
end

-- `final`: the whole input, without hint, lists and notes.
function Prompt:paint(final)
  local editor = self.editor
  local columns, height = sizes.size()
  local view = {text = editor.text, columns = columns, spans = self:spans()}
  view.prompt = {text = self.look.text, more = self.look.more}
  view.prompt.style = highlight.styles[self:mode() or "prompt"]
  if final then
    view.at, view.height = #editor.text, math.huge
  else
    view.at, view.height = editor.at, height
    view.hint, view.below = self.colors and editor:hint() or nil, below_of(editor, columns)
    view.below_style = highlight.styles.note
  end
  local rows, cursor = layout.rows(view)
  if not self.colors then
    for i, row in ipairs(rows) do rows[i] = row:gsub("\27%[[%d;]*m", "") end
  end
  tty.write(self.screen:paint(rows, cursor))
  self.columns = columns
end

-- Moves to the first column of a line. Where the program's last line has no newline, an inverse "%"
-- stays after it.
local function fresh_line(columns)
  return "\27[7m%\27[0m" .. (" "):rep(columns - 1) .. "\r \r\27[J"
end

-- The next key, "closed" at the end of input, "resized", or nil where a signal asks to stop. A
-- pause of 50 ms distinguishes the escape key from a sequence.
function Prompt:next_key()
  while #self.queue == 0 do
    local ambiguous = self.decoder:is_ambiguous()
    local bytes = tty.read(ambiguous and 50 or -1)
    if bytes == "" then return "closed" end
    if not bytes and self.interrupted() then return nil end
    if not bytes and not ambiguous then return "resized" end
    self.queue = self.decoder:feed(bytes or "", bytes == nil)
  end
  return table.remove(self.queue, 1)
end

-- Edits the text in the editor that $VISUAL or $EDITOR names.
function Prompt:edit_outside()
  local name = os.tmpname()
  local path = name .. ".lua"
  os.rename(name, path)
  local file = io.open(path, "w")
  file:write(self.editor.text)
  file:close()
  tty.write(self.screen:leave())
  tty.stop()
  os.execute((os.getenv "VISUAL" or os.getenv "EDITOR" or "vi") .. " " .. path)
  tty.start()
  local text = files.read(path):gsub("%s+$", "")
  os.remove(path)
  if text ~= self.editor.text then self.editor:key "M->" end
  self.editor:set(text)
end

function Prompt:resize()
  local columns = sizes.size()
  tty.restart()
  if columns ~= self.columns then tty.write(self.screen:resized(columns)) end
end

-- Does what the editor requests; where that ends the input, true and its result (see read).
function Prompt:answer(request)
  if request == "submit" then return true, self.editor.text end
  if request == "eof" then return true, nil end
  if request == "interrupt" then return true, false end
  if request == "clear" then
    tty.write "\27[H\27[2J"
    self.screen = screens.new()
  elseif request == "suspend" then
    tty.write(self.screen:leave())
    tty.suspend()
  elseif request == "edit" then
    self:edit_outside()
  end
end

function Prompt:loop()
  while true do
    if #self.queue == 0 then self:paint() end
    local key = self:next_key()
    if key == "closed" then return nil end
    if key == nil then return false end
    if key == "resized" then
      self:resize()
    else
      local over, result = self:answer(self.editor:key(key))
      if over then return result end
    end
  end
end

--- prompt:read() -> a text; nil at the end of input (Ctrl-D); false where Ctrl-C dropped it.
function Prompt:read()
  self.editor:start()
  self.screen = screens.new()
  tty.start()
  local good, result = pcall(function()
    tty.write(fresh_line((sizes.size())))
    local text = self:loop()
    self:paint(true)
    tty.write((text == false and "^C" or "") .. self.screen:leave())
    return text
  end)
  tty.stop()
  if not good then error(result, 0) end
  return result
end

return M
