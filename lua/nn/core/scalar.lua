-- Numbers that compiled functions read at each call.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {}
local Scalar = {}
Scalar.__index = Scalar
M.Scalar = Scalar
--- nn.scalar(value) -> a number that may change between calls of a compiled function, where a plain
--- number is a constant: tasks read it when they are submitted. The ops of optimizers accept it as
--- lr and step. Errors: the value is not a number; an op that does not accept a scalar.
---     local rate, w = nn.scalar(0.5), nn.zeros(1)
---     local update = nn.compile(function(g) nn.sgd_(w, g, {lr = rate}) return w + 0 end)
---     update(nn.ones(1))  --> {-0.5}
---     rate:set(2)
---     update(nn.ones(1))  --> {-2.5}
function M.scalar(value)
  arguments.need(type(value) == "number", "scalar", "the value", value, "a number is needed")
  local out = ffi.new "int32_t[1]"
  check(C.nn_scalar_new(value, out))
  local owner = newproxy(true)   -- frees the engine's scalar when the table is collected
  local number = out[0]
  getmetatable(owner).__gc = function() C.nn_scalar_free(number) end
  return setmetatable({number = number, owner = owner}, Scalar)
end
--- rate:set(value) sets its value. Errors: the value is not a number.
---     local rate = nn.scalar(1)
---     rate:set(0.5)
---     rate:get()  --> 0.5
function Scalar:set(value)
  arguments.need(type(value) == "number", "scalar", "the value", value, "a number is needed")
  check(C.nn_scalar_set(self.number, value))
end
--- rate:get() -> its current value.
---     nn.scalar(7):get()  --> 7
function Scalar:get()
  local out = ffi.new "double[1]"
  check(C.nn_scalar_get(self.number, out))
  return out[0]
end
--- rate:add(delta) adds to its value; in a compiled function, at every call, in order with the
--- tasks around it.
---     local count = nn.scalar(0)
---     local f = nn.compile(function(y) count:add(1) return y + 1 end)
---     f(x); f(x)
---     count:get()  --> 2
function Scalar:add(delta) check(C.nn_scalar_add(self.number, delta)) end
Scalar.__tostring = function(s) return "scalar(" .. s:get() .. ")" end

return M
