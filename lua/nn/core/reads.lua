-- What the code of a Lua function reads, by its bytecode: guards.lua decides by it which values a
-- compiled function depends on.

local util = require "jit.util"

local M = {}

-- The opcode of instruction `pc` of a function. Opcodes differ between versions of LuaJIT, so they
-- are read from functions that contain them.
local function opcode(f, pc) return bit.band(util.funcbc(f, pc), 0xff) end
local GLOBAL = opcode(loadstring "return a", 1)
local FIELD = opcode(loadstring "local a = ... return a.b", 2)
local UPVALUE = opcode(loadstring "local a = 1 return function() return a end" (), 1)
local MOVE = opcode(loadstring "local a = ... local b = a", 2)
local NILS = opcode(loadstring "local a, b", 1)
local FIRST_CALL = opcode(loadstring "a(b())", 4)    -- from here on: calls, returns, loops, jumps

-- A node is a value that code reads: {fields = {name = node}, any = {name = true}}. any: the fields
-- that the function reads of values of unknown origin, such as results of calls.
local Node = {}
Node.__index = Node

local function new_node(any) return setmetatable({fields = {}, any = any}, Node) end

--- node() -> a node without fields.
function M.node() return new_node {} end

--- node:child(name) -> the node of a field; creates it if needed.
function Node:child(name)
  self.fields[name] = self.fields[name] or new_node(self.any)
  return self.fields[name]
end

--- node:below(name) -> the node of a field that code may read, also one of unknown origin.
function Node:below(name)
  self.rest = self.rest or new_node(self.any)
  return self.fields[name] or self.rest
end

--- node:add(other): adds the fields of another node.
function Node:add(other)
  for name in pairs(other.any) do self.any[name] = true end
  for name, field in pairs(other.fields) do self:child(name):add(field) end
end

--- node:names() -> the set of the names of all fields that code may read.
function Node:names()
  local set = {}
  for name in pairs(self.any) do set[name] = true end
  for name in pairs(self.fields) do set[name] = true end
  return set
end

-- The node that an upvalue of `code` is, or nil: a local variable of the function around it.
local function upvalue_node(code, number, out)
  local name = util.funcuvname(code, number)
  if out.own[name] then
    out.upvalues[name] = out.upvalues[name] or new_node(out.any)
    return out.upvalues[name]
  end
  return name == "self" and out.object or nil
end

-- Adds what a function or prototype reads, and the functions inside it. Follows values through
-- registers in the order of the code; a jump forgets nothing.
local function scan(code, out, registers)
  local info = util.funcinfo(code)
  for pc = 1, info.bytecodes - 1 do
    local instruction = util.funcbc(code, pc)
    local op, a = bit.band(instruction, 0xff), bit.band(bit.rshift(instruction, 8), 0xff)
    local d, node = bit.rshift(instruction, 16), nil
    if op == FIELD then
      local name, base = util.funck(code, -bit.band(d, 0xff) - 1), registers[bit.rshift(d, 8)]
      if base then node = base:child(name) else out.any[name] = true end
    elseif op == GLOBAL then
      local name = util.funck(code, -d - 1)
      out.globals[name] = out.globals[name] or new_node(out.any)
      node = out.globals[name]
    elseif op == UPVALUE then
      node = upvalue_node(code, d, out)
    elseif op == MOVE then
      node = registers[d]
    elseif op == NILS or op >= FIRST_CALL then
      for register = a, info.stackslots do registers[register] = nil end
    end
    registers[a] = node
  end
  for i = 1, info.gcconsts do
    local constant = util.funck(code, -i)
    if type(constant) == "proto" then scan(constant, out, {}) end
  end
end

local known = setmetatable({}, {__mode = "k"})

--- of(f) -> {globals = {name = node}, upvalues = {name = node}, object = node, any=}: what a Lua
--- function reads, together with the functions inside it. object: its first parameter.
function M.of(f)
  if known[f] then return known[f] end
  local any, own = {}, {}
  for i = 1, debug.getinfo(f, "u").nups do own[debug.getupvalue(f, i)] = true end
  local out = {globals = {}, upvalues = {}, any = any, own = own, object = new_node(any)}
  scan(f, out, {[0] = util.funcinfo(f).params > 0 and out.object or nil})
  known[f] = out
  return out
end

return M
