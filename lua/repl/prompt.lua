-- Reads one input from a terminal: keys to the editor, its state to the screen.
local files = require "nn.files"
local highlight = require "repl.highlight"
local keys = require "repl.keys"
local layout = require "repl.layout"
local screens = require "repl.screen"
local sizes = require "nn.terminal"
local tty = require "repl.tty"
local text_of = require "repl.text"

local M = {}
local Prompt = {}
Prompt.__index = Prompt

--- new(editor, interrupted) -> prompt. interrupted(): whether a signal asks to stop.
function M.new(editor, interrupted)
  return setmetatable({editor = editor, interrupted = interrupted, decoder = keys.decoder(),
                       colors = sizes.has_colors(1), queue = {}}, Prompt)
end

-- The prompt shows what a line that starts like this will do.
local modes = {["?"] = "help", [";"] = "shell", ["%"] = "command"}

local function prompt_of(editor)
  local style = modes[editor.text:match "^%s*([?;%%])" or ""] or "prompt"
  return {text = "nn> ", more = "    ", style = highlight.styles[style]}
end

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

local function spans_of(editor)
  local s = editor.search
  if s and s.from then return {{from = s.from, to = s.to, style = highlight.styles.match}} end
  if modes[editor.text:match "^%s*([?;])" or ""] then return nil end
  return highlight.spans(editor.text, editor.at)
end

-- `final`: without what helps only while editing.
function Prompt:paint(final)
  local editor = self.editor
  local columns, height = sizes.size()
  local view = {prompt = prompt_of(editor), text = editor.text, columns = columns, height = height,
                at = final and #editor.text or editor.at}
  view.spans = spans_of(editor)
  if not final then
    view.hint, view.below = self.colors and editor:hint() or nil, below_of(editor, columns)
    view.below_style = highlight.styles.note
  else
    view.height = math.huge
  end
  local rows, cursor = layout.rows(view)
  if not self.colors then
    for i, row in ipairs(rows) do rows[i] = row:gsub("\27%[[%d;]*m", "") end
  end
  tty.write(self.screen:paint(rows, cursor))
  self.columns = columns
end

-- Puts the prompt into the first column, also where a program's last line has no end: this marker
-- stays visible only there.
local function fresh_line(columns)
  local marker = "\27[7m%\27[0m"
  return marker .. (" "):rep(columns - 1) .. "\r \r\27[J"
end

-- The next key; or "closed" (no key has such a name) and "resized". A lone escape is told from a
-- sequence by a pause; a signal comes as nil.
function Prompt:next_key()
  while #self.queue == 0 do
    local bytes = tty.read(self.decoder:waits() and 50 or -1)
    if bytes == "" then return "closed" end
    if not bytes and self.interrupted() then return nil end
    if not bytes and not self.decoder:waits() then return "resized" end
    self.queue = self.decoder:feed(bytes or "", bytes == nil)
  end
  return table.remove(self.queue, 1)
end

-- The text in the editor that $VISUAL or $EDITOR names.
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
  tty.again()
  if columns ~= self.columns then tty.write(self.screen:resized(columns)) end
end

-- Does what the editor asks for; the second result is true when the input is over.
function Prompt:answer(ask)
  if ask == "submit" then return self.editor.text, true end
  if ask == "eof" then return nil, true end
  if ask == "interrupt" then return false, true end
  if ask == "clear" then
    tty.write "\27[H\27[2J"
    self.screen = screens.new()
  elseif ask == "suspend" then
    tty.write(self.screen:leave())
    tty.suspend()
  elseif ask == "edit" then
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
      local result, over = self:answer(self.editor:key(key))
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
