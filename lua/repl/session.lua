-- Runs what is typed: values print and become `ans`, errors leave everything as it was, Ctrl-C
-- stops the running code and nothing else.
local hints = require "nn.base.hints"
local ffi = require "ffi"
local code = require "repl.code"
local host = require "nn.host"
local lengths = require "repl.lengths"
local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"
local pretty = require "repl.pretty"
local terminal = require "nn.base.terminal"

local M = {}
local declared = {}          -- names of `local x` without a value: they read as nil
M.failed = false             -- whether an input ended in an error
M.interrupted = false        -- whether Ctrl-C ended the last one

local prepared = false
local at_start = {}          -- names in _G before the user's
--- prepare(): keeps all code that is loaded from here on from being compiled to machine code, where
--- Ctrl-C could not stop a loop. The library is compiled: its loops always end. jit.on(f, true)
--- compiles a function again.
function M.prepare()
  if prepared then return end
  prepared = true
  for name in pairs(_G) do at_start[name] = true end
  at_start.nn = true
  local library = "@" .. host.root .. "/lua/"
  local info = require("jit.util").funcinfo
  jit.attach(function(prototype)          -- called for each function that is loaded
    if info(prototype).source:sub(1, #library) ~= library then jit.off(prototype) end
  end, "bc")
end

-- Names from other prompts, and hints.
local leave, tour = "; Ctrl-D leaves", "; ? shows an overview, ?NAME shows help on a name"
local meant = {exit = leave, quit = leave, help = tour, dir = "; %who lists your variables",
               torch = "; the library is nn", import = "; load modules with require \"NAME\"",
               None = "; it is nil", True = "; it is true", False = "; it is false",
               len = "; the length of a list is #list, a tensor's size x:dim(1)",
               range = "; write for i = 1, n do ... end"}

-- Unknown names are errors in typed code; elsewhere they are nil, as always in Lua.
local function unknown(_, name)
  if declared[name] or name == "ans" or type(name) ~= "string" then return nil end
  local caller = debug.getinfo(2, "S")
  if not caller or caller.source ~= "=nn>" then return nil end
  lib.misuse("there is no variable '%s'%s", name, meant[name] or suggest.suggestion(name, _G))
end

--- open(): defines `nn`, and makes unknown names errors.
function M.open()
  M.prepare()
  _G.nn = require "nn"
  if getmetatable(_G) == nil then setmetatable(_G, {__index = unknown}) end
end

--- variables() -> {name = value} of the user's globals.
function M.variables()
  local out = {}
  for name, value in pairs(_G) do
    if not at_start[name] then out[name] = value end
  end
  return out
end

--- complain(text): prints an error message, in red on a terminal.
function M.complain(text)
  M.failed = true
  io.stdout:flush()
  if terminal.has_colors(2) then text = text:gsub("^error:", "\27[31m%0\27[0m") end
  io.stderr:write(text, "\n")
end

-- The text of an error, for a person at the prompt.
local function explain(e)
  if lib.is_interrupt(e) then return "interrupted" end
  local class = type(e) == "table" and getmetatable(e)
  local has_text = type(e) == "string" or class and class.__tostring
  return "error: " .. tostring(lib.traced(has_text and e or "error value: " .. pretty.value(e)))
end

--- guarded(f, ...) -> true and f(...)'s results, once the tasks that f submitted are done; or false
--- after printing the error.
function M.guarded(f, ...)
  if host.before_input then host.before_input() end        -- a training loop of an earlier input
  local results = {xpcall(f, explain, ...)}
  host.clear_signals()
  M.interrupted = results[2] == "interrupted" and not results[1]
  if not results[1] then
    M.complain(results[2])
    local advice = host.failed and host.failed(results[2])   -- of a training run
    if advice then M.complain(advice) end
    return false
  end
  if lib.C.nn_sync() < 0 then
    local message = ffi.string(lib.C.nn_error())
    host.clear_signals()
    M.complain(message == "interrupted" and message or "error: " .. message)
    return false
  end
  return unpack(results, 1, table.maxn(results))
end

-- Runs a unit (see code.lua) and prints its values, one under the other. Returns whether it ended
-- without an error.
local function run(unit)
  jit.off(unit.chunk, true)
  local results = {M.guarded(function()
    lengths.check(unit.text)
    return unit.chunk()
  end)}
  local count = table.maxn(results)
  if not results[1] then return false end
  if count > 1 then rawset(_G, "ans", results[2]) end
  for i = 2, unit.silent and 1 or count do
    local good, text = M.guarded(function() return pretty.value(results[i]) end)
    if good then print(text) end
  end
  return true
end

-- The units of a text; nil after printing the error.
local function units_of(text)
  local units, err = code.units(text, function(name) declared[name] = true end)
  if not units then M.complain("error: " .. err .. hints.syntax(text)) end
  return units
end

--- silent(text) -> a function that runs the text and prints nothing; nil after printing the error.
function M.silent(text)
  local units = units_of(text)
  for _, unit in ipairs(units or {}) do jit.off(unit.chunk, true) end
  return units and function()
    for _, unit in ipairs(units) do unit.chunk() end
  end
end

--- evaluate(text) -> whether it compiled and ran; stops at the first error, which is printed.
function M.evaluate(text)
  local units = units_of(text)
  for _, unit in ipairs(units or {}) do
    if not run(unit) then return false end
  end
  return units ~= nil
end

return M
