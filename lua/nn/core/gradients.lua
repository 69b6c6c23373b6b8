-- Functions of gradients: nn.grad, and changes of the gradients between backward() and an
-- optimizer's step.

local arguments = require "nn.base.arguments"
local of_leaves = require "nn.core.leaf_gradients"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}

-- A copy of a value (a tensor, or a table of values) with a new leaf for each tensor.
local function leaves(value)
  if is_tensor(value) then
    local leaf = value:detach()
    leaf.requires_grad = value.dtype:match("f") ~= nil
    return leaf
  elseif type(value) == "table" then
    local out = {}
    for k, v in pairs(value) do out[k] = leaves(v) end
    return out
  end
  return value
end

-- The gradients of these leaves, in tables of the same structure.
local function gradients(value)
  if is_tensor(value) then return value.grad end
  if type(value) ~= "table" then return nil end
  local out = {}
  for k, v in pairs(value) do out[k] = gradients(v) end
  return out
end

--- nn.grad(f)(x, ...) -> f's value, and its gradient with respect to each argument. An argument is
--- a tensor, or a nested table of tensors, whose gradient is a table of the same structure. f must
--- return a tensor of one element. No gradient flows through the results of nn.grad: second
--- derivatives are not supported.
---     nn.grad(function(w) return w:square():sum() end)(nn.tensor{1, 2})  --> 5, {2, 4}
function M.grad(f)
  arguments.callable("grad", f)
  return function(...)
    local given, n = {...}, select("#", ...)
    for i = 1, n do given[i] = leaves(given[i]) end
    local loss = f(unpack(given, 1, n))
    arguments.need(is_tensor(loss), "grad", "the result", loss, "a tensor of one element is needed")
    loss:backward()
    local out = {}
    for i = 1, n do out[i] = gradients(given[i]) end
    loss = loss:detach()
    loss.from_grad = true              -- backward() does not go through it
    return loss, unpack(out, 1, n)
  end
end

-- The leaves with a gradient among the parameters of a model, of a list or of a table.
local function with_gradients(who, model)
  local leaves_with = {}
  for _, p in ipairs(module.entries(who, is_tensor(model) and {model} or model)) do
    if p.tensor.grad then leaves_with[#leaves_with + 1] = p.tensor end
  end
  return leaves_with
end

local function limit_option(who, value)
  arguments.need(type(value) == "number" and value >= 0, who, "the limit", value,
                 "a number of at least 0 is needed")
  return value
end

--- nn.clip_grad_norm_(model, limit) -> the global norm of the gradients before (an f64 tensor).
--- Multiplies the gradients by min(1, limit / (norm + 1e-6)). model: a module, a tensor, or a list
--- or table of tensors. An optimizer with the option `clip` does the same in its step, faster.
--- Errors: a limit below 0; no gradient.
---     local w = nn.tensor({3, 4}, {grad = true})
---     (w:square():sum() / 2):backward()
---     nn.clip_grad_norm_({w}, 1), w.grad  --> 5, {0.6, 0.8}
function M.clip_grad_norm_(model, limit)
  local who = "clip_grad_norm_"
  limit_option(who, limit)
  local leaves_with, grads = with_gradients(who, model), {}
  for i, leaf in ipairs(leaves_with) do grads[i] = leaf.grad end
  if #grads == 0 then
    lib.misuse("%s: no parameter has a gradient; call loss:backward() first", who)
  end
  return tape.no_grad(function()
    local norm = ops.call("grad_norm", grads)
    local factor = (limit / (norm + 1e-6)):minimum(1)
    for i, leaf in ipairs(leaves_with) do
      of_leaves.replace(leaf, grads[i] * factor:to(grads[i].dtype))
    end
    return norm
  end)
end

--- nn.clip_grad_value_(model, limit) clamps every element of the gradients to [-limit, limit]; see
--- nn.clip_grad_norm_.
---     local w = nn.tensor({3, -0.5}, {grad = true})
---     w:square():sum():backward()
---     nn.clip_grad_value_({w}, 2)
---     w.grad  --> {2, -1}
function M.clip_grad_value_(model, limit)
  limit_option("clip_grad_value_", limit)
  tape.no_grad(function()
    for _, leaf in ipairs(with_gradients("clip_grad_value_", model)) do
      of_leaves.replace(leaf, leaf.grad:clamp(-limit, limit))
    end
  end)
end

return M
