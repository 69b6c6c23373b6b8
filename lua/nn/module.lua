-- Modules: tables with parameters, called like functions. A class is made by nn.module "Name" and
-- defines init (called by the constructor) and forward (called by the object).

local lib = require "nn.ffi"
local ops = require "nn.op"
local tensor = require "nn.tensor"
local is_tensor = tensor.is_tensor

local M = {}
local Module = {}
Module.__index = Module

--- nn.module(name) -> a class. Class(...) makes an object and calls its init(...), object(...) its
--- forward(...).
---   local Twice = nn.module "Twice"
---   function Twice:forward(x) return x * 2 end
function M.module(name)
  local class = setmetatable({class_name = name}, {
    __index = Module,
    __call = function(class, ...)
      local object = setmetatable({}, class)
      if class.init then object:init(...) end
      return object
    end,
  })
  class.__index = class
  class.__call = function(object, ...) return object:forward(...) end
  class.__tostring = function(object) return require("nn.show").module(object) end
  return class
end

--- Whether x is an object of a module class.
function M.is_module(x)
  local class = getmetatable(x)
  return type(x) == "table" and type(class) == "table" and rawget(class, "class_name") ~= nil
end

--- nn.parameter(shape, {std | value, dtype="f32", axes}) -> a tensor that needs a gradient, normal
--- with standard deviation std, or filled with value.
function M.parameter(shape, options)
  local x = ops.call("empty", shape, {dtype = options.dtype, axes = options.axes})
  if options.std and options.std > 0 then
    x:normal_ {std = options.std}
  else
    x:fill_(options.value or 0)
  end
  x.requires_grad = true
  return x
end

--- nn.list(count, make) -> a list of `count` objects made by make(i), to be a field of a module.
function M.list(count, make)
  local out = {}
  for i = 1, count do out[i] = make(i) end
  return out
end

local function collect(value, path, seen, out)
  for key, field in pairs(value) do
    local here = path == "" and tostring(key) or (path .. "." .. tostring(key))
    if is_tensor(field) then
      if field.requires_grad and not seen[field] then
        seen[field] = true
        out[#out + 1] = {path = here, tensor = field}
      end
    elseif type(field) == "table" and not seen[field]
           and (M.is_module(field) or getmetatable(field) == nil) then
      seen[field] = true
      collect(field, here, seen, out)
    end
  end
end

--- model:parameters() -> {{path = "blocks.1.norm1.weight", tensor = ...}, ...} in the order they
--- were made. A parameter that is used in two places (a tied head) comes once, under the path that
--- sorts first.
function Module:parameters()
  local out = {}
  collect(self, "", {}, out)
  table.sort(out, function(a, b) return a.tensor.order < b.tensor.order end)
  return out
end

--- model:state() -> the same list: what a checkpoint holds of a model.
function Module:state() return self:parameters() end

--- model:count() -> number of parameters.
function Module:count()
  local n = 0
  for _, p in ipairs(self:parameters()) do n = n + p.tensor:count() end
  return n
end

--- model:zero_grad() forgets the gradients of all parameters.
function Module:zero_grad()
  for _, p in ipairs(self:parameters()) do require("nn.grad").set_leaf_grad(p.tensor, nil) end
end

--- model:load(state) copies tensors, by path, into the parameters. Every path must be there, with
--- the right shape.
function Module:load(state)
  local by_path = {}
  for _, entry in ipairs(state) do by_path[entry.path] = entry.tensor end
  local own = self:parameters()
  for _, p in ipairs(own) do
    local source = by_path[p.path]
    if not source then lib.fail("load: '%s' is missing", p.path) end
    local a, b = tensor.shape_text(source.shape), tensor.shape_text(p.tensor.shape)
    if a ~= b then lib.fail("load: '%s' is %s, the model needs %s", p.path, a, b) end
  end
  require("nn.grad").no_grad(function()
    for _, p in ipairs(own) do p.tensor:copy_(by_path[p.path]) end
  end)
end

return M
