-- Numbers that compiled functions read at each run.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {}
local Scalar = {}
Scalar.__index = Scalar
M.Scalar = Scalar
--- nn.scalar(value) -> a number that may change between runs of a compiled function, where a number
--- would be frozen: tasks read it when they are submitted. The optimizers' ops take it as lr and
--- step. Errors: no number; where an op cannot follow it.
---     local rate, w = nn.scalar(0.5), nn.zeros(1)
---     local update = nn.compile(function(g) nn.sgd_(w, g, {lr = rate}) return w + 0 end)
---     update(nn.ones(1))  --> {-0.5}
---     rate:set(2)
---     update(nn.ones(1))  --> {-2.5}
function M.scalar(value)
  arguments.need(type(value) == "number", "scalar", "the value", value, "a number is needed")
  local out = ffi.new "int32_t[1]"
  check(C.nn_scalar_new(value, out))
  local owner = newproxy(true)   -- frees the engine's scalar with the table that holds it
  local number = out[0]
  getmetatable(owner).__gc = function() C.nn_scalar_free(number) end
  return setmetatable({number = number, owner = owner}, Scalar)
end
--- rate:set(value): its value from now on. Errors: no number.
---     local rate = nn.scalar(1)
---     rate:set(0.5)
---     rate:get()  --> 0.5
function Scalar:set(value)
  arguments.need(type(value) == "number", "scalar", "the value", value, "a number is needed")
  check(C.nn_scalar_set(self.number, value))
end
--- rate:get() -> its value now.
---     nn.scalar(7):get()  --> 7
function Scalar:get()
  local out = ffi.new "double[1]"
  check(C.nn_scalar_get(self.number, out))
  return out[0]
end
--- rate:add(delta) adds to the number; in a compiled function this happens at every run, in order
--- with the tasks around it.
---     local count = nn.scalar(0)
---     local f = nn.compile(function(y) count:add(1) return y + 1 end)
---     f(x); f(x)
---     count:get()  --> 2
function Scalar:add(delta) check(C.nn_scalar_add(self.number, delta)) end
Scalar.__tostring = function(s) return "scalar(" .. s:get() .. ")" end

return M
