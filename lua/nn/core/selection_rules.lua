-- The gradient rules of ops that sort, select, scatter and scan; see gradient_rules.lua.

local gradient_rules = require "nn.core.gradient_rules"
local ops = require "nn.core.op"
local as_tensor, attribute = gradient_rules.as_tensor, gradient_rules.attribute
local needs_grad, with_size = gradient_rules.needs_grad, gradient_rules.with_size

local rules = {}

-- A value of src that a later one replaced has no gradient.
function rules.scatter(node, g)
  local x, index, src = unpack(node.inputs, 1, 3)
  local axis = attribute(node, "axis") or -1
  if axis < 0 then axis = #x.shape + 1 + axis end
  g = as_tensor(g, node.results[1])
  local dx = needs_grad(x) and g:scatter(index, 0, axis) or nil
  if not needs_grad(src) then return {dx} end
  local own_axis = #index.shape > 1 and axis or 1
  local ones, order = {}, ops.call("arange", index:dim(own_axis), {dtype = "i64"})
  for i = 1, #index.shape do ones[i] = 1 end
  order = order:reshape(with_size(ones, own_axis, -1)):expand(index.shape)
  local places = with_size(index.shape, own_axis, x:dim(axis))
  local last = ops.call("full", places, 0, {dtype = "i64"}):scatter(index, order, own_axis)
  local kept = last:gather(index, own_axis):eq(order)
  if #index.shape < #x.shape then
    for i = 1, #x.shape do ones[i] = 1 end
    kept = kept:reshape(with_size(ones, axis, -1))
  end
  return {dx, nil, kept:where(g:gather(index, axis), 0)}
end

-- Of ops that return elements along an axis and their positions; a tensor without axes is its only
-- element.
local function selection(node, g)
  local x, indices, axis = node.inputs[1], node.results[2], attribute(node, "axis") or -1
  g = as_tensor(g, node.results[1])
  if #x.shape == 0 then return {g} end
  local shape = with_size(x.shape, axis, indices:count() * x:dim(axis) / x:count())
  local options = {size = x:dim(axis), axis = axis}
  return {g:reshape(shape):scatter_add(indices:reshape(shape), options)}
end
rules.sort, rules.topk, rules.kthvalue = selection, selection, selection

function rules.median(node, g)
  if node.results[2] then return selection(node, g) end
  local x = node.inputs[1]
  local _, index = x:reshape(-1):median {axis = 1, keepdim = true}
  g = as_tensor(g, node.results[1]):reshape(1)
  return {g:scatter_add(index, {size = x:count()}):reshape(x.shape)}
end

local function running_sum(g, node, reverse)
  return g:cumsum {axis = attribute(node, "axis"), reverse = reverse}
end
function rules.cumsum(node, g)
  return {running_sum(as_tensor(g, node.results[1]), node, not attribute(node, "reverse"))}
end
-- The sum of g y from element i on is x[i] times its derivative. It cannot be divided by a zero:
-- there the first zero counts as 1, and later elements have no influence.
function rules.cumprod(node, g)
  local x, y, reverse = node.inputs[1], node.results[1], attribute(node, "reverse") or false
  g = as_tensor(g, y)
  local is_zero = x:eq(0)
  local zeros = running_sum(is_zero, node, reverse)
  local first = is_zero:logical_and(zeros:eq(1))
  local nonzero = first:where(1, x)
  local beyond = nonzero:cumprod {axis = attribute(node, "axis"), reverse = reverse}
  local at_zero = running_sum(g * beyond, node, not reverse)
  local before = running_sum(g * y, node, not reverse) / nonzero
  return {first:where(at_zero, zeros:eq(0):where(before, 0))}
end

for name, rule in pairs(rules) do gradient_rules.set(name, rule) end
