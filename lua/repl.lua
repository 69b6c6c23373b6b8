-- The interactive session: reads, evaluates, prints. input.lua reads, session.lua runs code.

local ffi = require "ffi"
local code = require "repl.code"
local commands = require "repl.commands"
local highlight = require "repl.highlight"
local host = require "nn.host"
local indent = require "repl.indent"
local input = require "repl.input"
local lib = require "nn.base.capi"
local nn = require "nn"
local session = require "repl.session"

local M = {}

ffi.cdef [[
  int chdir(const char *path);
]]

--- prepare(): makes what is loaded from here on interruptible; called before the script of `-i`.
M.prepare = session.prepare

-- A command followed by code continues where the code does.
local function is_unfinished(text)
  text = text:match "^%s*%%%a+%s+(.*)$" or text
  return text:find "%S" ~= nil and not text:find "^%s*[?;%%]" and code.unfinished(text)
end

local look = {text = "nn> ", more = "    ", spans = highlight.spans,
              modes = {["?"] = "help", [";"] = "shell", ["%"] = "command"}}

local tour = [[
Values print themselves; the last one is `ans`; a line that ends in ; is silent.
?name       help on an op, a function    ??word     search all docs
;command    a shell command              %help      time, memory, profile, ...
Tab         complete names, options      Ctrl-R     search the history
Up          entries that start the same  Alt-Enter  a new line
Ctrl-C      drop the line, stop the code Ctrl-D     leave]]

local function help(name)
  if name == "" then return print(tour) end
  local command = commands.all[name]
  if command then return print(command.usage .. ": " .. command.about) end
  local found, about = require("nn.help.lookup").about(name)
  local value = not found and name:find "^[%a_][%w_]*$" and rawget(_G, name)
  if value then                                  -- the user's variable
    local methods = nn.is_tensor(value)
      and ("; Tab after %s: lists its methods, such as x:abs"):format(name) or ""
    about = ("%s is %s%s"):format(name, require("repl.pretty").line(value), methods)
  end
  print(about)
end

-- `cd` changes the folder of this process.
local function shell(command)
  local folder = command:match "^cd%s*(.-)%s*$"
  if not folder or folder:find "[;&|$`]" then return os.execute(command) end
  folder = folder:gsub("^~", os.getenv "HOME" or "~"):gsub("^['\"](.*)['\"]$", "%1")
  if folder == "" then folder = os.getenv "HOME" or "/" end
  if ffi.C.chdir(folder) ~= 0 then session.complain("error: there is no folder " .. folder) end
end

local function handle(text)
  local marks, word = text:match "^%s*(%?%??)%s*(.-)%s*$"
  if marks == "??" then return print(require("nn.help.lookup").search(word)) end
  if marks == "?" then return help(word) end
  local command = text:match "^;%s*(.+)$"
  if command then return shell(command) end
  if text:find "^%s*%%" then return commands.run(text) end
  if text:find "%S" then session.evaluate(text) end
end

-- Outside the user's code Ctrl-C drops what was being done; another signal ends the program.
local function clear_signals()
  host.clear_signals()
  local number = host.signal()
  if number ~= 0 and number ~= 2 then os.exit(128 + number) end
  nn.clear_interrupt()
end

-- Reads and runs one input; false at the end of input.
local function step(read)
  local good, more = pcall(function()
    if not session.interrupted then lib.C.nn_idle() end   -- workers sleep while the user thinks
    local text = read()
    if text then handle(text) end
    return text ~= nil
  end)
  clear_signals()
  if good then return more end
  if not tostring(more):find "interrupted$" then session.complain("error: " .. tostring(more)) end
  return true
end

--- run(): runs the session until the end of input. If input is not a terminal and a line failed,
--- the exit status is 1.
function M.run()
  session.open()
  local read, is_edited = input.reader {
    look = look, history = "history", unfinished = is_unfinished, indent = indent,
    complete = require("repl.complete").complete,
  }
  local is_tty = nn.is_tty(0)
  if is_tty then
    local version = nn.version():match "^[^\n]*"
    print(version .. ".  ? for help, Ctrl-D to leave.")
  end
  while step(read) do end
  if is_tty and not is_edited then print() end
  if not is_tty and session.failed then os.exit(1) end
end

return M
