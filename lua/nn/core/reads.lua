-- What the code of a Lua function reads, by its bytecode: guards.lua decides by it which values a
-- compiled function depends on.

local util = require "jit.util"
local bytecode = require "nn.base.bytecode"

local M = {}
local decode, ARGUMENT, MOVE = bytecode.decode, bytecode.ARGUMENT, bytecode.MOVE

-- A node is a value that code reads: {fields = {name = node}}, and flags: escaped: code that does
-- not know where it comes from may read it; computed: its fields are read by names that code
-- computes; counted: code iterates over its fields; given: a function of the library got it;
-- appended: code appends to it; listed: code reads all its elements.
local Node = {}
Node.__index = Node
local FLAGS = {"escaped", "computed", "counted", "given", "appended", "listed"}

--- node() -> a node without fields.
function M.node() return setmetatable({fields = {}}, Node) end

--- node:child(name) -> the node of a field; creates it if needed.
function Node:child(name)
  self.fields[name] = self.fields[name] or M.node()
  return self.fields[name]
end

--- node:below(name) -> the node of a field that code may read.
function Node:below(name)
  self.rest = self.rest or M.node()
  local node = self.fields[name] or self.rest
  node.escaped = node.escaped or self.escaped
  node.given = node.given or self.given
  return node
end

--- node:add(other) -> whether it adds any fields or flags of another node, which may be one below.
function Node:add(other)
  local changed, fields = false, {}
  for _, flag in ipairs(FLAGS) do
    changed = changed or other[flag] and not self[flag] or false
    self[flag] = self[flag] or other[flag]
  end
  for name, field in pairs(other.fields) do fields[name] = field end
  for name, field in pairs(fields) do
    changed = changed or not self.fields[name]
    changed = self:child(name):add(field) or changed
  end
  return changed
end

--- node:names(unknown) -> {[name] = true, or "method" if code only calls it as one} of the fields
--- that code may read. unknown: the names that code reads of values whose origin it does not know.
function Node:names(unknown)
  local set = {}
  for name, how in pairs(self.escaped and unknown or {}) do set[name] = how end
  for name in pairs(self.fields) do set[name] = true end
  return set
end

-- What a register may hold is a list of nodes. parameter: it is the function's first parameter, or
-- a field of it; unknown: it may also be another value.

local function mark(nodes, flag)
  for _, node in ipairs(nodes or {}) do node[flag] = true end
end

-- The field of the values in a register.
local function field_of(out, nodes, name, is_method)
  if not nodes or nodes.parameter or nodes.unknown then
    out.unknown[name] = (out.unknown[name] == true or not is_method) and true or "method"
  end
  if not nodes then return nil end
  local found = {parameter = nodes.parameter, unknown = nodes.unknown}
  for i, node in ipairs(nodes) do
    found[i] = node:child(name)
    found[i].library = node.library
  end
  return found
end

-- A global, or an upvalue of the whole function.
local function root(of, name)
  local node = of:child(name)
  node.name, node.library = name, name == "nn"
  return {node}
end

-- An upvalue of the code; nil: a local variable of the function around it.
local function upvalue(code, number, out)
  local name = util.funcuvname(code, number)
  if out.own[name] then return root(out.upvalues, name) end
  return name == "self" and {out.object, parameter = true} or nil
end

-- A call of the function in register a: its arguments escape.
local function call(out, registers, a, count)
  local f = registers[a] and registers[a][1]
  local globals = out.globals.fields
  for i = a + ARGUMENT, a + ARGUMENT + count - 1 do
    local nodes = registers[i]
    if f and f == (globals.table and globals.table.fields.insert) then
      mark(nodes, "appended")
    else
      mark(nodes, "escaped")
    end
    if f and f.library then mark(nodes, "given") end
  end
  local name, first = f and f.name, registers[a + ARGUMENT]
  if name == "pairs" or name == "next" then
    mark(first, "counted")
    out.iterates = out.iterates or not first or first.parameter or first.unknown
  end
  if name == "pairs" or name == "next" or name == "rawget" then mark(first, "computed") end
  local concat = globals.table and globals.table.fields.concat
  if name == "ipairs" or name == "unpack" or f and f == concat then mark(first, "listed") end
end

-- The scan of one function or prototype. registers: {[number] = what it may hold}; certain: the
-- jumps so far lead at most to here, so later code runs in any case; section: the number of the
-- stretch of code without jumps, and sections those in which the registers were set.
local Scan = {}
Scan.__index = Scan

-- Register a gets these nodes. Where other code may have left others in it, it keeps them.
function Scan:set(a, nodes, keeps)
  local before = self.registers[a]
  if before and (keeps or self.pc < self.certain and self.sections[a] ~= self.section) then
    nodes = nodes or {}
    local all = {parameter = nodes.parameter or before.parameter,
                 unknown = nodes.unknown or before.unknown or #nodes == 0}
    for _, list in ipairs {before, nodes} do
      for _, node in ipairs(list) do all[#all + 1] = node end
    end
    nodes = all
  end
  self.registers[a], self.sections[a] = nodes, self.section
end

function Scan:jump(target)
  self.section, self.targets[target] = self.section + 1, true
  self.certain = math.max(self.certain, target)
end

function Scan:clear(first)
  for register = first, self.slots do self.registers[register] = nil end
end

-- Instructions that give register A a value: {[opcode] = f(scan, a, b, c, d)}, which returns nodes.
local gives = {
  [bytecode.FIELD] = function(scan, a, b, c)
    local op, to, _, _, from = decode(scan.code, scan.pc - 1)
    local is_method = op == MOVE and from == b and to == a + ARGUMENT
    return field_of(scan.out, scan.registers[b], bytecode.constant(scan.code, c), is_method)
  end,
  [bytecode.ELEMENT] = function(scan, _, b, c)
    return scan.registers[b] and field_of(scan.out, scan.registers[b], c)
  end,
  [bytecode.COMPUTED] = function(scan, _, b)
    mark(scan.registers[b], "computed")
    mark(scan.registers[b], "escaped")
  end,
  [bytecode.LENGTH] = function(scan, _, _, _, d)
    local after = decode(scan.code, scan.pc + 1)
    if after == bytecode.ADD_NUMBER then mark(scan.registers[d], "appended") end
  end,
  [bytecode.GLOBAL] = function(scan, _, _, _, d)
    return root(scan.out.globals, bytecode.constant(scan.code, d))
  end,
  [bytecode.UPVALUE] = function(scan, _, _, _, d) return upvalue(scan.code, d, scan.out) end,
  [MOVE] = function(scan, _, _, _, d) return scan.registers[d] end,
}

-- Instructions without a value of their own. Returns whether it is one.
function Scan:passes(op, a, c, d)
  local registers = self.registers
  if op == bytecode.JUMP then
    self:jump(self.pc + 1 + d - 0x8000)
  elseif op == bytecode.OR or op == bytecode.AND then
    self:set(a, registers[d], true)
  elseif bytecode.STORES[op] then
    mark(registers[a], "escaped")
  elseif op == bytecode.SET_UPVALUE then
    mark(registers[d], "escaped")
  elseif op >= bytecode.FIRST_CALL and op <= bytecode.LAST_CALL then
    call(self.out, registers, a, c)
    self:clear(a)
  elseif op >= bytecode.FIRST_RETURN and op <= bytecode.LAST_RETURN then
    for register = a, a + d do mark(registers[register], "escaped") end
  elseif op == bytecode.NILS or op >= bytecode.FIRST_CALL then
    self:clear(a)
  else
    return op < MOVE                       -- comparisons
  end
  return true
end

local function scan(code, out, registers)
  local info = util.funcinfo(code)
  local self = setmetatable({code = code, out = out, registers = registers, slots = info.stackslots,
                             sections = {}, section = 0, targets = {}, certain = 0}, Scan)
  for pc = 1, info.bytecodes - 1 do
    local op, a, b, c, d = decode(code, pc)
    self.pc = pc
    if self.targets[pc] then self.section = self.section + 1 end
    if op == bytecode.CLOSURE then
      for register = 0, self.slots do mark(registers[register], "escaped") end
    end
    if not self:passes(op, a, c, d) then
      self:set(a, gives[op] and gives[op](self, a, b, c, d))
    end
  end
  for i = 1, info.gcconsts do
    local constant = util.funck(code, -i)
    if type(constant) == "proto" then scan(constant, out, {}) end
    if type(constant) == "string" then out.texts[constant] = true end
  end
end

local known = setmetatable({}, {__mode = "k"})

--- of(f) -> {globals=, upvalues=, object=, unknown=, iterates=, texts=}: what a Lua function reads,
--- together with the functions inside it. globals, upvalues: nodes with a field for each; object:
--- the node of its first parameter; unknown: the names that it reads of values of unknown origin
--- (see Node:names); iterates: whether it iterates over the fields of such values; texts: the set
--- of its constants that are texts.
function M.of(f)
  if known[f] then return known[f] end
  local out = {globals = M.node(), upvalues = M.node(), object = M.node(), unknown = {}, own = {},
               texts = {}}
  for i = 1, debug.getinfo(f, "u").nups do out.own[debug.getupvalue(f, i)] = true end
  local has_object = util.funcinfo(f).params > 0
  scan(f, out, {[0] = has_object and {out.object, parameter = true} or nil})
  known[f] = out
  return out
end

return M
