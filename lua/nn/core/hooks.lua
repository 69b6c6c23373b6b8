-- Hooks of modules: functions that run before and after a module's forward(), and in the backward
-- pass. An object without hooks has no field `_hooks`, and its calls only check that.

local custom = require "nn.core.custom"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local rules = require "nn.core.gradient_rules"
local tape = require "nn.core.tape"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}
local Hooks = {}                 -- a metatable, so that walks over modules skip the lists
local Handle = {type_name = "hook"}
Handle.__index = Handle

--- add(object, kind, f, changed) -> a handle. kind: "pre", "forward" or "backward". changed() is
--- called when it is removed.
function M.add(object, kind, f, changed)
  local hooks = rawget(object, "_hooks") or setmetatable({pre = {}, forward = {}, backward = {}},
                                                         Hooks)
  rawset(object, "_hooks", hooks)
  local handle = setmetatable({object = object, kind = kind, f = f, changed = changed}, Handle)
  table.insert(hooks[kind], handle)
  return handle
end

function Handle:remove()
  local hooks = rawget(self.object, "_hooks")
  for i, handle in ipairs(hooks and hooks[self.kind] or {}) do
    if handle == self then
      table.remove(hooks[self.kind], i)
      self.changed()
      break
    end
  end
  if hooks and #hooks.pre + #hooks.forward + #hooks.backward == 0 then self.object._hooks = nil end
end

--- functions(object) -> the list of the functions that are hooks of a module.
function M.functions(object)
  local out = {}
  for _, list in pairs(rawget(object, "_hooks") or {}) do
    for _, handle in ipairs(list) do out[#out + 1] = handle.f end
  end
  return out
end

local function pack(...) return {n = select("#", ...), ...} end

-- Calls seen(g) with the gradient of x; its result, if any, replaces the gradient.
local function watched(x, seen)
  return custom.custom {
    name = "hook", forward = function(v) return v end,
    backward = function(g) return seen(g) or g end,
  }(x)
end

-- Watches the gradients of the first argument that needs one, and of the result; returns a function
-- that watches the result.
local function watch_backward(object, hooks, inputs)
  local g_output, watches_input
  local function call(g_input)
    for _, handle in ipairs {unpack(hooks.backward)} do
      g_input = handle.f(object, g_input, g_output) or g_input
    end
    return g_input
  end
  for i = 1, inputs.n do
    if not watches_input and rules.needs_grad(inputs[i]) then
      watches_input = true
      inputs[i] = watched(inputs[i], call)
    end
  end
  return function(results)
    if results.n ~= 1 or not is_tensor(results[1]) then
      lib.misuse("%s: a full backward hook needs a module that returns one tensor; it returns %d "
                 .. "values (use nn.custom)", getmetatable(object).class_name, results.n)
    end
    results[1] = watched(results[1], function(g)
      g_output = g
      if not watches_input then call(nil) end
    end)
  end
end

-- The values of a list, or one value, that a hook returned; else the ones from before.
local function replaced(before, value)
  if value == nil then return before end
  if type(value) == "table" and getmetatable(value) == nil then
    value.n = value.n or table.maxn(value)
    return value
  end
  return pack(value)
end

--- call(object, forward, ...) -> forward(object, ...), with its hooks.
function M.call(object, forward, ...)
  local hooks, inputs = object._hooks, pack(...)
  for _, handle in ipairs {unpack(hooks.pre)} do
    inputs = replaced(inputs, handle.f(object, inputs))
  end
  local watch_result = #hooks.backward > 0 and tape.grad_enabled()
    and watch_backward(object, hooks, inputs)
  local results = pack(layer.call(object, forward, unpack(inputs, 1, inputs.n)))
  for _, handle in ipairs {unpack(hooks.forward)} do
    local shown = results.n == 1 and results[1] or results
    results = replaced(results, handle.f(object, inputs, shown))
  end
  if watch_result then watch_result(results) end
  return unpack(results, 1, results.n)
end

return M
