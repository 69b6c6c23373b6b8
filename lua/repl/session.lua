-- Runs what is typed: values print themselves and become `ans`, errors leave everything as it was,
-- Ctrl-C stops the running code and nothing else.
local elsewhere = require "nn.base.hints"
local ffi = require "ffi"
local code = require "repl.code"
local host = require "nn.host"
local lib = require "nn.base.capi"
local near = require "nn.base.suggest"
local pretty = require "repl.pretty"
local terminal = require "nn.base.terminal"

local M = {}
local declared = {}          -- names of `local x` without a value: they read as nil
M.failed = false             -- whether an input ended in an error

-- Code that is typed, or loaded from here on, is not compiled to machine code, where Ctrl-C cannot
-- stop a loop. The library itself is: none of its loops goes on without end.
local prepared = false
local at_start = {}          -- names of _G before there was anything of the user's
--- prepare(): to be called before the code that shall be interruptible is loaded. A function that
--- needs the compiler gets it back by jit.on(f, true).
function M.prepare()
  if prepared then return end
  prepared = true
  for name in pairs(_G) do at_start[name] = true end
  at_start.nn = true
  local library = "@" .. host.root .. "/lua/"
  local info = require("jit.util").funcinfo
  jit.attach(function(prototype)          -- called for each function of what is loaded
    if info(prototype).source:sub(1, #library) ~= library then jit.off(prototype) end
  end, "bc")
end

-- What other prompts call by these names.
local leave, tour = "; Ctrl-D leaves", "; ? shows what there is, ?NAME helps on a name"
local meant = {exit = leave, quit = leave, help = tour, dir = "; %who lists your variables",
               torch = "; the library is nn", import = "; modules are loaded by require \"NAME\"",
               None = "; it is nil", True = "; it is true", False = "; it is false",
               len = "; the length of a list is #list, a tensor's size x:dim(1)",
               range = "; Lua counts by for i = 1, n do ... end"}

-- Unknown names are errors in code that is typed; elsewhere they are nil, as always in Lua.
local function unknown(_, name)
  if declared[name] or name == "ans" or type(name) ~= "string" then return nil end
  local caller = debug.getinfo(2, "S")
  if not caller or caller.source ~= "=nn>" then return nil end
  lib.misuse("there is no variable '%s'%s", name, meant[name] or near.suggestion(name, _G))
end

--- open(): makes `nn` and unknown names known to typed code.
function M.open()
  M.prepare()
  _G.nn = require "nn"
  if getmetatable(_G) == nil then setmetatable(_G, {__index = unknown}) end
end

--- variables() -> {name = value} of what the user has made.
function M.variables()
  local out = {}
  for name, value in pairs(_G) do
    if not at_start[name] then out[name] = value end
  end
  return out
end

--- complain(text): an error message, in red on a terminal.
function M.complain(text)
  M.failed = true
  io.stdout:flush()
  if terminal.has_colors(2) then
    text = text:gsub("^error:", "\27[31m%0\27[0m")
  end
  io.stderr:write(text, "\n")
end

-- What an error says to a person at the prompt.
local function explain(e)
  local stopped = type(e) == "string" and (e == "interrupted" or e:find ": interrupted$")
  if stopped then return "interrupted" end
  local class = type(e) == "table" and getmetatable(e)
  local has_text = type(e) == "string" or class and class.__tostring
  local traced = lib.traced(has_text and e or "error value: " .. pretty.value(e))
  if type(traced) == "table" and traced.interrupted then return "interrupted" end
  return "error: " .. tostring(traced)
end

--- guarded(f) -> true and f()'s results; or false, and the error has been told. Waits for the tasks
--- that f submitted.
function M.guarded(f)
  local results = {xpcall(f, explain)}
  lib.C.nn_clear_interrupt()
  if not results[1] then
    M.interrupted = results[2] == "interrupted"
    M.complain(results[2])
    return false
  end
  M.interrupted = false
  if lib.C.nn_sync() < 0 then
    local message = ffi.string(lib.C.nn_error())
    lib.C.nn_clear_interrupt()
    M.complain(message == "interrupted" and message or "error: " .. message)
    return false
  end
  return unpack(results, 1, table.maxn(results))
end

--- show(...): prints values, one under the other.
function M.show(...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    local good, text = M.guarded(function() return pretty.value(value) end)
    if good then print(text) end
  end
end

--- run(unit) -> whether it went well. Its values are shown.
function M.run(unit)
  jit.off(unit.chunk, true)
  local results = {M.guarded(unit.chunk)}
  if not results[1] then return false end
  local count = table.maxn(results)
  if count > 1 then rawset(_G, "ans", results[2]) end
  if not unit.silent then M.show(unpack(results, 2, count)) end
  return true
end

local function declare(name) declared[name] = true end

--- compile(text) -> list of units (see code.lua); nil where it is no code, which has been told.
function M.compile(text)
  local units, err = code.units(text, declare)
  if not units then M.complain("error: " .. err .. elsewhere.syntax(text)) end
  return units
end

--- evaluate(text): runs it, up to the first error.
function M.evaluate(text)
  for _, unit in ipairs(M.compile(text) or {}) do
    if not M.run(unit) then return end
  end
end

return M
