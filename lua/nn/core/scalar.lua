-- Numbers that compiled functions read at each call. methods.lua adds their operators.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {}
local Scalar = {type_name = "scalar"}
Scalar.__index = Scalar
M.Scalar = Scalar

--- is_scalar(value) -> whether the value is an nn.scalar.
function M.is_scalar(value) return getmetatable(value) == Scalar end
local is_scalar = M.is_scalar

-- An object for the engine's scalar of this number. sources: {[scalar] = true}, those on which its
-- value depends; nil: itself.
local function wrap(number, sources)
  local owner = newproxy(true)   -- frees the engine's scalar when the table is collected
  getmetatable(owner).__gc = function() C.nn_scalar_free(number) end
  return setmetatable({number = number, owner = owner, sources = sources}, Scalar)
end

--- nn.scalar(value) -> a number that may change between calls of a compiled function, where a plain
--- number is a constant: tasks read it when they are submitted. Arithmetic with scalars and numbers
--- (+ - * / ^) gives a scalar, whose value follows: -s, 1 - s, s * t. A scalar can stand for a
--- number in arithmetic with tensors of floats, in ops such as x:clamp(0, s) or x:gt(s), in
--- x:fill_(s), nn.full(shape, s), and as lr and step in optimizers and their ops. Errors: the value
--- is not a number; an op that does not accept a scalar; reading or setting it inside a compiled
--- function. Lua's s == 2 is false, and s < 2 an error: compare s:get() with numbers.
---     local rate, w = nn.scalar(0.5), nn.zeros(1)
---     local update = nn.compile(function(g) w:add_(g * -rate) return w + 0 end)
---     update(nn.ones(1))  --> {-0.5}
---     rate:set(2)
---     update(nn.ones(1))  --> {-2.5}
function M.scalar(value)
  arguments.need(type(value) == "number", "scalar", "the value", value, "a number is needed")
  local out = ffi.new "int32_t[1]"
  check(C.nn_scalar_new(value, out))
  return wrap(out[0])
end

--- check_outside(who, advice): raises an error in a compiled function, where Lua code that reads or
--- sets a number runs only once.
function M.check_outside(who, advice)
  if engine.recording() then
    lib.misuse("%s: in a compiled function it would happen once, not at each call; %s", who, advice)
  end
end

--- rate:set(value) sets its value. Errors: the value is not a number; inside a compiled function;
--- the scalar is computed from others.
---     local rate = nn.scalar(1)
---     rate:set(0.5)
---     rate:get()  --> 0.5
function Scalar:set(value)
  arguments.need(type(value) == "number", "scalar", "the value", value, "a number is needed")
  M.check_outside("set", "call it outside, or use s:add(delta)")
  check(C.nn_scalar_set(self.number, value))
end

--- value_of(s) -> its current value, in a recording too.
function M.value_of(s)
  local out = ffi.new "double[1]"
  check(C.nn_scalar_get(s.number, out))
  return out[0]
end

--- rate:get() -> its current value. Error: inside a compiled function.
---     nn.scalar(7):get()  --> 7
function Scalar:get()
  M.check_outside("get", "use the scalar itself: x * s")
  return M.value_of(self)
end

--- rate:add(delta) adds to its value; in a compiled function, at every call, in order with the
--- tasks around it. Errors: delta is not a number; the scalar is computed from others.
---     local count = nn.scalar(0)
---     local f = nn.compile(function(y) count:add(1) return y + 1 end)
---     f(x); f(x)
---     count:get()  --> 2
function Scalar:add(delta)
  arguments.need(type(delta) == "number", "scalar", "delta", delta, "a number is needed")
  check(C.nn_scalar_add(self.number, delta))
  self.additions = (self.additions or 0) + 1
end

--- operand(s, out): writes it to an nn_value.
function M.operand(s, out)
  for source, additions in pairs(s.kept or {}) do
    if (source.additions or 0) ~= additions then
      lib.misuse("backward: an nn.scalar changed by add() after an op used it, and its gradient "
                 .. "needs the value before; call add() after backward()")
    end
  end
  out.kind, out.number = 4, s.number
end

local function write(value, out)
  if is_scalar(value) then return M.operand(value, out) end
  arguments.need(type(value) == "number", "scalar", "an operand", value,
                 "numbers and scalars can be combined")
  out.kind, out.number = 1, value
end

--- computed(op, a, b) -> the scalar a op b, for "+", "-", "*", "/" and "^".
function M.computed(op, a, b)
  local values, out, sources, kept = ffi.new "nn_value[2]", ffi.new "int32_t[1]", {}, nil
  write(a, values[0])
  write(b, values[1])
  check(C.nn_scalar_computed(op:byte(), values, values + 1, out))
  for _, operand in ipairs {a, b} do
    for source in pairs(is_scalar(operand) and (operand.sources or {[operand] = true}) or {}) do
      sources[source] = true
    end
    for source, additions in pairs(is_scalar(operand) and operand.kept or {}) do
      kept = kept or {}
      kept[source] = additions
    end
  end
  local result = wrap(out[0], sources)
  result.kept = kept
  return result
end

--- kept(s) -> what the tape keeps of an operand: outside recordings its value now; else a scalar
--- whose use is an error after an add().
function M.kept(s)
  if not engine.recording() then return M.value_of(s) end
  local out = M.computed("*", s, 1)
  local kept = out.kept or {}
  for source in pairs(out.sources) do
    if not kept[source] then kept[source] = source.additions or 0 end
  end
  out.kept = kept
  return out
end

Scalar.__tostring = function(s) return "scalar(" .. M.value_of(s) .. ")" end

return M
