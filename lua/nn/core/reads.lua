-- What the code of a Lua function reads, by its bytecode: guards.lua decides by it which values a
-- compiled function depends on.

local util = require "jit.util"

local M = {}

-- The opcode of instruction `pc` of a function.
local function opcode(f, pc) return bit.band(util.funcbc(f, pc), 0xff) end

-- Opcodes differ between versions of LuaJIT, so they are read from functions that contain them.
local GLOBAL = opcode(loadstring "return a", 1)
local FIELD = opcode(loadstring "local a = ... return a.b", 2)
local UPVALUE = opcode(loadstring "local a = 1 return function() return a end" (), 1)

-- Adds what a function or prototype reads, and the functions inside it.
local function scan(code, out)
  local info = util.funcinfo(code)
  for pc = 1, info.bytecodes - 1 do
    local instruction = util.funcbc(code, pc)
    local op, d = bit.band(instruction, 0xff), bit.rshift(instruction, 16)
    if op == GLOBAL then
      out.globals[util.funck(code, -d - 1)] = true
    elseif op == FIELD then
      out.fields[util.funck(code, -bit.band(d, 0xff) - 1)] = true
    elseif op == UPVALUE then
      out.upvalues[util.funcuvname(code, d) or ""] = true
    end
  end
  for i = 1, info.gcconsts do
    local constant = util.funck(code, -i)
    if type(constant) == "proto" then scan(constant, out) end
  end
  return out
end

local known = setmetatable({}, {__mode = "k"})

--- of(f) -> {globals=, fields=, upvalues=}: sets of the names that a Lua function reads, together
--- with the functions inside it. fields: the names after a dot or colon, of any table.
function M.of(f)
  known[f] = known[f] or scan(f, {globals = {}, fields = {}, upvalues = {}})
  return known[f]
end

return M
