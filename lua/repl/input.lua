-- Reads what the user types, for the prompt and for recipes such as chat.lua: prompt.lua edits the
-- lines on a terminal; from pipes and dumb terminals they are read plainly.
local ffi = require "ffi"
local nn = require "nn"
local tty = require "repl.tty"

local M = {}

ffi.cdef "int siginterrupt(int signal, int flag);"

-- Whether SIGHUP, SIGINT and SIGTERM end the wait for a line.
local function signals_end_reads(on)
  for _, number in ipairs {1, 2, 15} do ffi.C.siginterrupt(number, on and 1 or 0) end
end

-- A line without its newline; nil at the end of input; false where a signal such as Ctrl-C dropped
-- it.
local function read_line(prompt)
  signals_end_reads(true)
  local good, text = pcall(function()
    if nn.is_tty(0) then
      io.write(prompt)
      io.flush()
      tty.wait_for_line(nn.interrupted)
      if nn.interrupted() then return false end
    end
    local line = io.read "*l"    -- no tail call: an interrupt must be raised in here
    return line
  end)
  signals_end_reads(false)
  if good and not nn.interrupted() then return text end
  if nn.is_tty(0) then print() end
  return false
end

local function read_plain(options)
  local prompt, more_prompt = options.look.text, (options.look.text:gsub("[^>]", " "))
  local text = read_line(prompt)
  if not text then return text end
  if text:sub(1, #prompt) == prompt then text = text:sub(#prompt + 1) end   -- pasted with it
  while options.unfinished(text) do
    local more = read_line(more_prompt)
    if more == nil then return text end
    if not more then return false end
    text = text .. "\n" .. more
  end
  return text
end

--- reader{look=, history=, unfinished=, complete=, indent=} -> read, is_edited, entries.
--- read() -> a text; nil at the end of input; false where a signal dropped it. is_edited: whether
--- there is a terminal for the line editor; entries: its history. look: see prompt.lua; history:
--- the name of the file (see history.lua); the others: see editor.lua.
function M.reader(options)
  local editable = nn.is_tty(0) and nn.is_tty(1) and (os.getenv "TERM" or "dumb") ~= "dumb"
  if not editable or not tty.open() then
    return function() return read_plain(options) end, false
  end
  local histories = require "repl.history"
  local history = histories.open(histories.default_path(options.history))
  local editor = require("repl.editor").new {
    history = history, unfinished = options.unfinished, complete = options.complete,
    indent = options.indent,
  }
  local prompt = require("repl.prompt").new(editor, nn.interrupted, options.look)
  return function()
    local text = prompt:read()
    if text then history:add(text) end
    return text
  end, true, history
end

return M
