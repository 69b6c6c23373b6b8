-- Functions of tensors with a gradient of their own.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local rules = require "nn.core.gradient_rules"
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor

local M = {}

local custom_op = {name = "custom", inputs = {}, attributes = {}}
local custom_options = arguments.names "name forward backward"

-- Checks the results of a custom function's backward: gradients have the shapes of the inputs.
local function checked_gradients(who, inputs, ...)
  local grads = {...}
  for i = 1, table.maxn(inputs) do
    local x, g = inputs[i], grads[i]
    if g ~= nil and rules.needs_grad(x) then
      arguments.need(is_tensor(g), who, "gradient " .. i, g, "a tensor or nil is needed")
      local given, wanted = tensor.shape_text(g.shape), tensor.shape_text(x.shape)
      if given ~= wanted then
        lib.misuse("%s: gradient %d is %s, argument %d is %s", who, i, given, i, wanted)
      end
      grads[i] = g:detach()             -- g may be a value, not only a gradient
    end
  end
  return grads
end

--- nn.custom{forward = function(...) -> y, saved..., backward = function(g, saved...) -> gradients,
--- name = "custom"} -> a function of tensors (and other values) with its own gradient, like
--- torch.autograd.Function or JAX's custom_vjp. It returns y, one tensor. forward runs without a
--- tape; its results after y are passed to backward after g, the gradient of y. backward returns a
--- gradient for each argument in order, of the same shape; nil for none.
--- Errors: y or a gradient is not a tensor, or a gradient has another shape.
---     local clipped = nn.custom{forward = function(v) return v end,
---                               backward = function(g) return g:maximum(-1):minimum(1) end}
---     nn.grad(function(v) return (clipped(v) * 5):sum() end)(nn.tensor{1, 2})  --> 15, {1, 1}
function M.custom(options)
  options = arguments.options("custom", options, custom_options)
  local who = options.name or "custom"
  local forward, backward = options.forward, options.backward
  arguments.need(type(forward) == "function", who, "forward", forward, "a function is needed")
  arguments.need(type(backward) == "function", who, "backward", backward, "a function is needed")
  return function(...)
    local saved, inputs = {tape.no_grad(forward, ...)}, {}
    for i = 1, select("#", ...) do
      local x = select(i, ...)
      inputs[i] = is_tensor(x) and x or nil
    end
    arguments.need(is_tensor(saved[1]), who, "forward's result", saved[1], "a tensor is needed")
    local y = saved[1]:detach()   -- which may be an input
    local n = table.maxn(saved)
    for i = 2, n do
      if rawequal(saved[i], saved[1]) then saved[i] = y:detach() end   -- without y's node: no cycle
    end
    if y.dtype:match "f" then
      y.node = tape.custom_node(custom_op, inputs, y:detach(), saved, function(node, g)
        g = rules.as_tensor(g, node.results[1])
        return checked_gradients(who, inputs, backward(g, unpack(saved, 2, n)))
      end)
      y.output = y.node and 1
    end
    return y
  end
end

return M
