-- The gradient rules of ops, in one table, written with tensor ops; the rule of a fused op
-- calls its backward op. backward() in tape.lua applies them. Those of ops that sort, select and
-- scan are in selection_rules.lua.

local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor

local M = {}
local rules = {}

--- Whether x, the input of an op (a tensor, a number, or nil if absent), needs a gradient.
function M.needs_grad(x) return is_tensor(x) and (x.requires_grad or x.node ~= nil) end
local needs_grad = M.needs_grad

--- A gradient as a tensor shaped like `like`. It may be a plain number (that of the loss itself is
--- 1), which saves a pass over large tensors.
function M.as_tensor(g, like)
  if is_tensor(g) then return g end
  return ops.call("full_like", like, g)
end
local as_tensor = M.as_tensor

-- The same in the dtype of `like`, for backward ops: the gradient of a bf16 weight is f32, also
-- where the weight is the result of an op.
local function in_dtype_of(like, g)
  g = as_tensor(g, like)
  return g.dtype == like.dtype and g or g:to(like.dtype)
end

-- Sums a gradient over the axes along which its input was broadcast.
local function sum_to(g, x)
  if #g.shape == #x.shape then
    local axes = {}
    for i, size in ipairs(x.shape) do
      if size == 1 and g.shape[i] ~= 1 then axes[#axes + 1] = i end
    end
    return #axes > 0 and g:sum {axis = axes, keepdim = true} or g
  end
  local axes = {}
  for i = 1, #g.shape - #x.shape do axes[i] = i end
  return sum_to(g:sum {axis = axes}, x)
end

-- g summed to the shape of input x, or nil if x needs no gradient.
local function wanted(g, x) return needs_grad(x) and sum_to(g, x) or nil end

--- The value of an attribute of a node; nil if it was not given.
function M.attribute(node, name) return node.values[node.op.attribute_position[name]] end
local attribute = M.attribute

-- The results of an op that takes g and, by name, inputs, results and attributes of the node.
local function call_backward(node, g, backward)
  local op, arguments, values = node.op, {g}, {}
  for k = 2, #backward.inputs do
    local name = backward.inputs[k].name
    local position = op.input_position[name]
    arguments[k] = position and node.inputs[position] or node.results[op.output_position[name]]
  end
  for k, declared in ipairs(backward.attributes) do values[k] = attribute(node, declared.name) end
  return ops.invoke(backward.name, arguments, values)
end

-- The gradient of input i, computed by the op that is declared for it.
local function derivative(node, g, i)
  local input = node.inputs[i]
  local dx = sum_to((call_backward(node, g, node.op.derivatives[i])), input)
  return dx.dtype == input.dtype and dx or dx:to(input.dtype)
end

-- The rule of ops without one of their own.
local function derivatives(node, g)
  g = in_dtype_of(node.results[1], g)
  local out = {}
  for i in ipairs(node.op.inputs) do
    if needs_grad(node.inputs[i]) then out[i] = derivative(node, g, i) end
  end
  return out
end

-- A rule takes the node, the gradient of its first result (tensor, number or nil), into(i), and the
-- gradient of its second result. into(i) returns the gradient that input i already has, if a
-- backward op may add to it in place. A rule returns the gradients of the inputs by position.
-- node.unread: an argument of its backward op of which only the shape is read now.

function rules.add(node, g)
  if not is_tensor(g) then return {g, g} end
  return {wanted(g, node.inputs[1]), wanted(g, node.inputs[2])}
end
function rules.sub(node, g)
  if not is_tensor(g) then return {g, -g} end
  local a, b = node.inputs[1], node.inputs[2]
  return {wanted(g, a), needs_grad(b) and sum_to(-g, b) or nil}
end
function rules.neg(_, g) return {-g} end
function rules.mul(node, g)
  local a, b = node.inputs[1], node.inputs[2]
  if not is_tensor(a) then return {nil, g * a} end
  return is_tensor(b) and derivatives(node, g) or {g * b}
end
function rules.div(node, g)
  local b = node.inputs[2]
  return is_tensor(b) and derivatives(node, g) or {g / b}
end
function rules.where(node, g)
  local cond, a, b = unpack(node.inputs, 1, 3)
  g = as_tensor(g, node.results[1])
  local da = needs_grad(a) and sum_to(cond:where(g, 0), a) or nil
  local db = needs_grad(b) and sum_to(cond:where(0, g), b) or nil
  return {nil, da, db}
end

function rules.reshape(node, g)
  return {as_tensor(g, node.results[1]):reshape(node.inputs[1].shape)}
end
function rules.permute(node, g)
  local order, inverse = attribute(node, "order"), {}
  for i, axis in ipairs(order) do inverse[axis > 0 and axis or #order + 1 + axis] = i end
  return {as_tensor(g, node.results[1]):permute(inverse)}
end
function rules.slice(node, g)
  local x, start = node.inputs[1], {}
  local axis, first = attribute(node, "axis"), attribute(node, "first")
  if axis < 0 then axis = #x.shape + 1 + axis end
  if first < 0 then first = x.shape[axis] + 1 + first end
  for i = 1, #x.shape do start[i] = i == axis and first or 1 end
  g = as_tensor(g, node.results[1])
  local dx = ops.call("full_like", x, 0, {dtype = g.dtype})
  return {dx:assign_(g, start)}
end
function rules.cat(node, g)
  local axis, at, out = attribute(node, "axis") or 1, 1, {}
  g = as_tensor(g, node.results[1])
  for i, x in ipairs(node.inputs) do
    local size = x:dim(axis)
    out[i] = g:slice(axis, at, at + size - 1)
    at = at + size
  end
  return out
end
function rules.expand(node, g) return {sum_to(as_tensor(g, node.results[1]), node.inputs[1])} end
function rules.to(node, g)
  if not is_tensor(g) then return {g} end
  return {g:to(node.inputs[1].dtype)}
end
function rules.clone(_, g) return {g} end

--- A copy of a shape in which an axis has another size.
function M.with_size(shape, axis, size)
  local copy = {unpack(shape)}
  if #shape == 0 then return copy end
  copy[axis > 0 and axis or #shape + 1 + axis] = size
  return copy
end

-- The gradient or the value of a reduction with the reduced axes put back as size 1. A tensor
-- without axes has none to put back.
local function keepdim(node, t)
  local x, shape, reduced = node.inputs[1], {}, attribute(node, "axis")
  if type(reduced) == "number" then reduced = {reduced} end
  for i, size in ipairs(x.shape) do shape[i] = reduced and size or 1 end
  for _, axis in ipairs(#shape > 0 and reduced or {}) do
    shape[axis > 0 and axis or #x.shape + 1 + axis] = 1
  end
  return t:reshape(shape)
end
function rules.sum(node, g)
  return {keepdim(node, as_tensor(g, node.results[1])):expand(node.inputs[1].shape)}
end
function rules.mean(node, g)
  local x, y = node.inputs[1], node.results[1]
  return {(keepdim(node, as_tensor(g, y)) * (y:count() / x:count())):expand(x.shape)}
end
function rules.max(node, g)
  local x, y = node.inputs[1], node.results[1]
  local hit = x:eq(keepdim(node, y)):to(x.dtype)
  local axes = attribute(node, "axis")
  return {hit * (keepdim(node, as_tensor(g, y)) / hit:sum {axis = axes, keepdim = true})}
end
rules.min = rules.max
-- The derivative is the product of the other elements: y / x if no element is zero; if x is the
-- only zero, the product of all others; if another one is zero, 0.
function rules.prod(node, g)
  local x, reduced = node.inputs[1], {axis = attribute(node, "axis"), keepdim = true}
  local is_zero = x:eq(0)
  local zeros, nonzero = is_zero:to(x.dtype), is_zero:where(1, x)
  local others = (zeros:sum(reduced) - zeros):eq(0):where(nonzero:prod(reduced) / nonzero, 0)
  return {keepdim(node, as_tensor(g, node.results[1])) * others}
end

function rules.logsumexp(node, g)
  local x, axis = node.inputs[1], attribute(node, "axis") or -1
  return {x:softmax(axis) * as_tensor(g, node.results[1]):reshape(M.with_size(x.shape, axis, 1))}
end

function rules.gather(node, g)
  local x, index = node.inputs[1], node.inputs[2]
  local axis = attribute(node, "axis") or -1
  return {as_tensor(g, node.results[1]):scatter_add(index, {size = x:dim(axis), axis = axis})}
end
function rules.scatter_add(node, g)
  local index, axis = node.inputs[2], attribute(node, "axis") or -1
  return {as_tensor(g, node.results[1]):gather(index, {axis = axis})}
end
function rules.dropout(node, g)
  local mask = {p = attribute(node, "p"), counter = attribute(node, "counter"),
                seed = attribute(node, "seed")}
  return {as_tensor(g, node.results[1]):dropout(mask)}
end

local function matmul_matrices(node, g)
  local x, w = node.inputs[1], node.inputs[2]
  local tx, tw = attribute(node, "trans_x") or false, attribute(node, "trans_w") or false
  local dx = tx and w:matmul(g, {trans_x = tw, trans_w = true}) or g:matmul(w, {trans_w = not tw})
  local dw = tw and g:matmul(x, {trans_x = true, trans_w = tx}) or x:matmul(g, {trans_x = not tx})
  return {sum_to(dx, x), sum_to(dw, w)}
end
-- Treats a vector x as a matrix of one row, and a vector w as a matrix of one column.
local function matmul_vectors(node, g)
  local x, w = node.inputs[1], node.inputs[2]
  local tx = #x.shape > 1 and attribute(node, "trans_x") or false
  local tw = #w.shape > 1 and attribute(node, "trans_w") or false
  local x2 = #x.shape == 1 and x:reshape(1, -1) or x
  local w2 = #w.shape == 1 and w:reshape(-1, 1) or w
  local m = #x.shape == 1 and 1 or x2:dim(tx and -1 or -2)
  local n = #w.shape == 1 and 1 or w2:dim(tw and -2 or -1)
  local shape = {}
  for i = 1, math.max(#x2.shape, #w2.shape) - 2 do
    shape[i] = (#x2.shape >= #w2.shape and x2 or w2).shape[i]
  end
  shape[#shape + 1], shape[#shape + 2] = m, n
  local position = node.op.attribute_position
  local as_matrices = {op = node.op, inputs = {x2, w2},
                       values = {[position.trans_x] = tx, [position.trans_w] = tw}}
  local out = matmul_matrices(as_matrices, g:reshape(shape))
  return {out[1]:reshape(x.shape), out[2]:reshape(w.shape)}
end
function rules.matmul(node, g)
  g = in_dtype_of(node.results[1], g)
  local has_vector = #node.inputs[1].shape == 1 or #node.inputs[2].shape == 1
  return (has_vector and matmul_vectors or matmul_matrices)(node, g)
end

-- The results of linear are y and, with GELU or glu, pre, their input. A pass fuses the slope of
-- the activation into the product that computes the gradient of y
-- (engine/graph/passes/fuse_epilogues.cc).
function rules.linear(node, g, into, g_pre)
  local x, weight, bias = unpack(node.inputs, 1, 3)
  local y, pre, glu = node.results[1], node.results[2], attribute(node, "glu")
  if g_pre then
    g_pre = in_dtype_of(pre, g_pre)
    if g and glu then g = ops.call("glu_backward", in_dtype_of(y, g), pre, glu) + g_pre
    elseif g then g = ops.call("gelu_backward", in_dtype_of(y, g), pre) + g_pre
    else g = g_pre end
    pre, glu = nil, nil
  else
    g = in_dtype_of(y, g)
  end
  local dweight_before, dbias_before = into(2), bias and into(3)
  node.unread = not needs_grad(x) and weight or nil
  local dx, dweight, dbias = ops.call("linear_backward", g, x, weight,
    {pre = pre, dweight = dweight_before, dbias = dbias_before, bias = bias ~= nil,
     need_dx = needs_grad(x), glu = glu})
  return {dx, dweight_before or dweight, dbias_before or dbias}
end

function rules.conv2d(node, g, into)
  local x, weight, bias = unpack(node.inputs, 1, 3)
  local dweight_before, dbias_before = into(2), bias and into(3)
  if bias and not (dweight_before and dbias_before) then dweight_before, dbias_before = nil, nil end
  local options = {dweight = dweight_before, dbias = dbias_before, bias = bias ~= nil,
                   need_dx = needs_grad(x)}
  node.unread = not needs_grad(x) and weight or nil
  for _, name in ipairs {"stride", "padding", "same", "dilation", "groups"} do
    options[name] = attribute(node, name)
  end
  local dx, dweight, dbias = ops.call("conv2d_backward", in_dtype_of(node.results[1], g), x, weight,
                                      options)
  return {dx, dweight_before or dweight, dbias_before or dbias}
end

-- The results of layernorm are the norm y, the residual sum s = x + delta, and statistics.
function rules.layernorm(node, g, into, g_s)
  local _, weight, bias, delta = unpack(node.inputs, 1, 4)
  local y, s, stats = unpack(node.results, 1, 3)
  if not g then   -- only the residual sum was used
    return {g_s, nil, nil, delta and g_s}
  end
  local dweight_before, dbias_before = into(2), bias and into(3)
  if bias and not (dweight_before and dbias_before) then
    dweight_before, dbias_before = nil, nil
  end
  local dx, dweight, dbias = ops.call("layernorm_backward", in_dtype_of(y, g), s, stats, weight,
    {ds = g_s and in_dtype_of(s, g_s), dweight = dweight_before, dbias = dbias_before,
     bias = bias ~= nil})
  return {dx, dweight, dbias, delta and dx}
end

-- The results of rmsnorm are those of layernorm.
function rules.rmsnorm(node, g, into, g_s)
  local _, weight, delta = unpack(node.inputs, 1, 3)
  local y, s, stats = unpack(node.results, 1, 3)
  if not g then return {g_s, nil, delta and g_s} end
  local dx, dweight = ops.call("rmsnorm_backward", in_dtype_of(y, g), s, stats, weight,
    {ds = g_s and in_dtype_of(s, g_s), dweight = into(2)})
  return {dx, dweight, delta and dx}
end

function rules.attention(node, g)
  g = in_dtype_of(node.results[1], g)
  local dqkv, dbias = call_backward(node, g, ops.ops.attention_backward)
  return {dqkv, nil, dbias}
end
function rules.cross_attention(node, g)
  return {call_backward(node, in_dtype_of(node.results[1], g), ops.ops.cross_attention_backward)}
end

function rules.embedding(node, g, into)
  local ids, tokens, positions = unpack(node.inputs, 1, 3)
  local dtokens, dpositions = ops.call("embedding_backward", in_dtype_of(node.results[1], g), ids,
    tokens, {positions = positions, dtokens = into(2), dpositions = positions and into(3),
             start = attribute(node, "start")})
  return {nil, dtokens, dpositions}
end

function rules.cross_entropy(node, g)
  local logits, targets = unpack(node.inputs, 1, 2)
  local dlogits = ops.call("cross_entropy_backward", logits, targets,
    node.results[2], node.results[4], {ignore_index = attribute(node, "ignore_index")})
  if g == 1 then return {dlogits} end
  return {dlogits * (is_tensor(g) and g:to(dlogits.dtype) or g)}
end

-- The forward pass computed the gradients, for dloss = 1. Later gradients are added to dweight in
-- place, so a retained tape keeps the original and gives a copy.
function rules.linear_cross_entropy(node, g)
  local dhidden, dweight, dbias = unpack(node.results, 2, 4)
  if not dhidden then
    lib.deny("linear_cross_entropy: was called with gradient = false, so it has no gradient")
  end
  if g ~= 1 then return {dhidden * g, dweight * g, nil, dbias and dbias * g} end
  if not node.retained then return {dhidden, dweight, nil, dbias} end
  return {dhidden, dweight:clone(), nil, dbias and dbias:clone()}
end

--- The rule of an op, by name.
function M.rule_of(name) return rules[name] or derivatives end

--- Sets the rule of an op.
function M.set(name, rule) rules[name] = rule end

return M
