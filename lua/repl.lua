-- The interactive session: reads, evaluates, prints. `;` at the end silences, `ans` is the last
-- value, `?name` shows help, `;command` at the start runs a shell command, locals stay, an error
-- leaves everything as it was.

local ffi = require "ffi"
local nn = require "nn"
local lib = require "nn.ffi"
local near = require "nn.near"

local M = {}
local session = setmetatable({nn = nn, ans = nil}, {__index = _G})
local declared = {}      -- names of `local x` without a value: they read as nil
local failed = false     -- whether a line ended in an error

-- Line editing by libedit where it is installed; plain reading otherwise, and from a pipe.
local readline
local function open_editor()
  if not nn.is_tty(0) or os.getenv "TERM" == "dumb" then return end
  for _, name in ipairs {"libedit.so.2", "libedit.so.0"} do
    local ok, library = pcall(ffi.load, name)
    if ok then
      ffi.cdef [[
        char *readline(const char *prompt);
        int add_history(const char *line);
        void free(void *p);
      ]]
      readline = library
      return
    end
  end
end

local function read_plain_or_edited(prompt)
  lib.C.nn_idle()   -- the workers sleep while a person thinks
  if readline then
    local line = readline.readline(prompt)
    if line == nil then return nil end
    local text = ffi.string(line)
    ffi.C.free(line)
    if text:match "%S" then readline.add_history(text) end
    return text
  end
  if nn.is_tty(0) then
    io.write(prompt)
    io.flush()
  end
  local text = io.read "*l"     -- no tail call: an interrupt must be raised in here
  return text
end

ffi.cdef "int siginterrupt(int signal, int flag);"

-- A line without its end; nil at the end of input; false where Ctrl-C dropped it.
local function read_line(prompt)
  ffi.C.siginterrupt(2, 1)       -- SIGINT ends the waiting for a key
  local good, text = pcall(read_plain_or_edited, prompt)
  ffi.C.siginterrupt(2, 0)
  if good and not nn.interrupted() then return text end
  nn.clear_interrupt()
  if nn.is_tty(0) then print() end
  return false
end

-- A chunk from an expression if it is one, else from statements. The second result tells that the
-- text goes on in the next line.
local function compile(text)
  local chunk, expression_err = loadstring("return " .. text, "=nn>")
  if chunk then return chunk end
  local err
  chunk, err = loadstring(text, "=nn>")
  if chunk then return chunk end
  local unfinished = err:match "'<eof>'$" or expression_err:match "'<eof>'$"
  return nil, unfinished ~= nil, err
end

local function complain(text)
  failed = true
  io.stderr:write(text, "\n")
end

-- `local x = 1` at the prompt makes x a field of the session, so that it is there in the next line.
local function keep_locals(text)
  local names, rest = text:match "^%s*local%s+([%w_, ]+)(.*)$"
  if names and not names:find "^function%s" and (rest == "" or rest:find "^[=;]") then
    for name in names:gmatch "[%w_]+" do declared[name] = true end
    if rest:find "^;?%s*$" then return names:gsub("%s+$", "") .. " = nil" end
  end
  return (text:gsub("^%s*local%s+function%s+", "function "):gsub("^%s*local%s+([%w_, ]+=)", "%1"))
end

local function is_plain_table(value) return type(value) == "table" and not getmetatable(value) end

local function show(value)
  if type(value) == "string" then return ("%q"):format(value) end
  if not is_plain_table(value) then return tostring(value) end
  local parts, count = {}, 0
  for _, v in ipairs(value) do
    count = count + 1
    parts[#parts + 1] = #parts < 20 and tostring(v) or nil
  end
  for k, v in pairs(value) do
    local listed = type(k) == "number" and k >= 1 and k <= count
    if not listed and #parts < 20 then
      parts[#parts + 1] = tostring(k) .. " = " .. (is_plain_table(v) and "{...}" or tostring(v))
    end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function evaluate(text)
  local silent = text:match ";%s*$" ~= nil
  local chunk, _, err = compile((keep_locals(text):gsub(";%s*$", "")))
  if not chunk then return complain(err) end
  setfenv(chunk, session)
  jit.off(chunk, true)   -- a compiled loop cannot be interrupted
  local function handler(e)
    local class = type(e) == "table" and getmetatable(e)
    local has_text = type(e) == "string" or class and class.__tostring
    return tostring(lib.traced(has_text and e or ("error value: " .. show(e))))
  end
  local results = {xpcall(chunk, handler)}
  lib.C.nn_clear_interrupt()
  if not results[1] then return complain("error: " .. results[2]) end
  if lib.C.nn_sync() < 0 then return complain("error: " .. ffi.string(lib.C.nn_error())) end
  local n = table.maxn(results)
  if n > 1 then session.ans = results[2] end
  if silent then return end
  for i = 2, n do
    local ok, line = xpcall(function() return show(results[i]) end, handler)
    print(ok and line or "error: " .. tostring(line))
  end
end

local function help(name)
  if name == "" then
    print "Values print themselves; end a line with ; to silence it; `ans` is the last one."
    print("?name  help on an op or function      ??word  search all docs      "
          .. ";command  run a shell command      Ctrl-D  leave")
    return
  end
  print(require("nn.help").about(name))
end

local function handle(text)
  local word = text:match "^%s*%?%?%s*(.-)%s*$"
  if word then return print(require("nn.help").search(word)) end
  word = text:match "^%s*%?%s*(.-)%s*$"
  if word then return help(word) end
  local command = text:match "^;%s*(.+)$"
  if command then return os.execute(command) end
  if text:match "%S" then evaluate(text) end
end

-- Whether the text is code that goes on in the next line.
local function is_unfinished(text)
  if not text:match "%S" or text:match "^%s*[?;]" then return false end
  local _, unfinished = compile((text:gsub(";%s*$", "")))
  return unfinished
end

--- Runs the session until the end of input. Input that is no terminal ends the program with status
--- 1 where a line of it failed.
function M.run()
  open_editor()
  getmetatable(session).__index = function(_, name)
    local value = rawget(_G, name)
    if value == nil and name ~= "ans" and not declared[name] then
      local known = {}
      for k in pairs(_G) do known[k] = true end
      for k in pairs(session) do known[k] = true end
      lib.misuse("there is no variable '%s'%s", tostring(name), near.suggestion(name, known))
    end
    return value
  end
  if nn.is_tty(0) then
    local version = nn.version():match "^[^\n]*"
    print(version .. ".  ? for help, Ctrl-D to leave.")
  end
  while true do
    local text = read_line "nn> "
    if text == nil then break end
    text = (text or ""):gsub("^nn> ", "")   -- pasted with its prompt
    while is_unfinished(text) do
      local more = read_line "  > "
      text = more and text .. "\n" .. more or more == nil and text or ""
      if not more then break end
    end
    handle(text)
  end
  if nn.is_tty(0) then print() elseif failed then os.exit(1) end
end

return M
