-- The interactive session: reads, evaluates, prints. input.lua reads, session.lua runs code.

local ffi = require "ffi"
local code = require "repl.code"
local commands = require "repl.commands"
local files = require "nn.io.files"
local highlight = require "repl.highlight"
local host = require "nn.host"
local indent = require "repl.indent"
local input = require "repl.input"
local lib = require "nn.base.capi"
local nn = require "nn"
local reload = require "repl.reload"
local session = require "repl.session"

local M = {}

ffi.cdef [[
  int chdir(const char *path);
]]

--- prepare(): makes what is loaded from here on interruptible, and watches its files; called before
--- the script of `-i`.
function M.prepare()
  session.prepare()
  reload.start()
end

-- A command followed by code continues where the code does.
local function is_unfinished(text)
  local name, rest = text:match "^%s*(%%%a+)%s+(.*)$"
  local command = commands.all[name or ""]
  if command and not command.usage:find "CODE" then return false end
  text = rest or text
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
Ctrl-C      drop the line, stop the code Ctrl-D     leave; also exit, quit]]

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

-- `cd` changes the folder of this process; `cd -` returns to the one before.
local before_cd
local function shell(command)
  local folder = command:match "^cd%s*(.-)%s*$"
  if not folder or folder:find "[;&|$`]" then return os.execute(command) end
  local home, here = os.getenv "HOME", files.real_path "."
  folder = folder:gsub("^~", home or "~"):gsub("^['\"](.*)['\"]$", "%1")
  if folder == "" then folder = home or "/" end
  local back = folder == "-"
  if back and not before_cd then return session.complain "error: cd -: there was no cd before" end
  if back then folder = before_cd end
  if ffi.C.chdir(folder) ~= 0 then
    return session.complain("error: there is no folder " .. folder)
  end
  before_cd = here
  if back then print(folder) end
end

-- What a line without code asks for: "leave", or "help" and a name. So exit, quit() and
-- help(nn.softmax) do what other prompts do, unless the user has a variable of that name.
local function request(text)
  local word, rest = text:match "^%s*(%a+)%s*(.-)[%s;]*$"
  if not word or rawget(_G, word) ~= nil then return nil end
  local inside = rest == "" and rest or rest:match "^%((.*)%)$" or rest:match "^(['\"].*)$"
    or word == "help" and rest:match "^[%a_][%w_.:]*$"
  if not inside then return nil end
  if word == "help" then return "help", (inside:gsub("^%s*['\"]?(.-)['\"]?%s*$", "%1")) end
  if word == "exit" or word == "quit" then return "leave", tonumber(inside) end
end

-- Handles one input. Returns "leave" and a status if the session ends.
local function handle(text)
  local asked, what = request(text)
  if asked == "leave" then return asked, what end
  if asked == "help" then return help(what) end
  local marks, word = text:match "^%s*(%?%??)%s*(.-)%s*$"
  if marks == "??" then return print(require("nn.help.lookup").search(word)) end
  if marks == "?" then return help(word) end
  local command = text:match "^;%s*(.+)$"
  if command then return shell(command) end
  reload.changed()
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

-- Reads and runs one input. Returns false at the end of input, or "leave" and a status.
local function step(read)
  local good, more, status = pcall(function()
    if not session.interrupted then lib.C.nn_idle() end   -- workers sleep while the user thinks
    local text = read()
    if not text then return text ~= nil end
    local asked, exit_code = handle(text)
    return asked or true, exit_code
  end)
  clear_signals()
  if good then return more, status end
  if not tostring(more):find "interrupted$" then session.complain("error: " .. tostring(more)) end
  return true
end

--- run(): runs the session until the end of input. If input is not a terminal and a line failed,
--- the exit status is 1.
function M.run()
  M.prepare()
  session.open()
  local read, is_edited, history = input.reader {
    look = look, history = "history", unfinished = is_unfinished, indent = indent,
    complete = require("repl.complete").complete,
  }
  commands.history = history
  local is_tty = nn.is_tty(0)
  if is_tty then
    local version = nn.version():match "^[^\n]*"
    print(version .. ".  ? for help, Ctrl-D to leave.")
  end
  local more, status
  repeat more, status = step(read) until not more or more == "leave"
  if status then os.exit(status) end
  if is_tty and not is_edited and not more then print() end
  if not is_tty and session.failed then os.exit(1) end
end

return M
