-- The tape: every differentiable application is noted, and backward() walks the notes in reverse.
-- Gradient rules stand next to each other in one table, written with ordinary tensor calls; a fused
-- op's rule calls its backward op.

local lib = require "nn.ffi"
local ops = require "nn.op"
local tensor = require "nn.tensor"
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor

local M = {}
local enabled, sequence = true, 0
local rules = {}
M.rules = rules

--- nn.grad_enabled() -> whether ops are noted on the tape (false inside nn.no_grad).
function M.enabled() return enabled end
ops.grad_enabled = M.enabled

--- nn.no_grad(f, ...) -> f(...), with nothing noted on the tape.
function M.no_grad(f, ...)
  local before = enabled
  enabled = false
  local results = {pcall(f, ...)}
  enabled = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, table.maxn(results))
end

local function needs_grad(x) return x ~= nil and (x.requires_grad or x.node ~= nil) end

ops.set_recorder(function(op, inputs, values, results, count)
  if not enabled then return end
  local wanted = false
  for i = 1, table.maxn(inputs) do wanted = wanted or needs_grad(inputs[i]) end
  if not wanted then return end
  sequence = sequence + 1
  local node = {op = op, inputs = inputs, values = values, results = {}, count = count, sequence = sequence}
  for i = 1, count do
    if results[i] then
      -- The node keeps its results without their own node: no cycle holds tensors longer than the
      -- tape does.
      node.results[i] = results[i]:detach()
      if results[i].dtype:match("f") then results[i].node, results[i].output = node, i end
    end
  end
end)

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

-- A gradient may be a plain number (that of the loss itself is 1), which spares a pass over large
-- tensors.
local function as_tensor(g, like)
  if is_tensor(g) then return g end
  return ops.call("full_like", like, g)
end

-- Pointwise ops: the engine has one op for each derivative, with the inputs that it needs.
local function derivative(node, g, suffix, input)
  local backward = ops.ops[node.op.name .. "_backward" .. suffix]
  local arguments, values = {g}, {}
  for i, declared in ipairs(backward.inputs) do
    if declared.name == "y" then
      arguments[i] = node.results[1]
    elseif i > 1 then
      local position = node.op.input_position[declared.name]
      arguments[i] = node.inputs[position]
      local number = node.op.attribute_position[declared.name .. "_number"]
      if not arguments[i] and number then values[backward.attribute_position[declared.name .. "_number"]] = node.values[number] end
    end
  end
  local dx = sum_to(ops.invoke(backward.name, arguments, values), input)
  return dx.dtype == input.dtype and dx or dx:to(input.dtype)
end

local function pointwise(node, g)
  g = as_tensor(g, node.results[1])
  local out = {}
  if ops.ops[node.op.name .. "_backward"] then
    out[1] = derivative(node, g, "", node.inputs[1])
    return out
  end
  for i, declared in ipairs(node.op.inputs) do
    local x = node.inputs[i]
    if needs_grad(x) then out[i] = derivative(node, g, "_" .. declared.name, x) end
  end
  return out
end

local function attribute(node, name) return node.values[node.op.attribute_position[name]] end

-- A rule gets the node, the gradients of its results (tensor, number or nil) and into(i): the
-- gradient that input i has already, if a backward op may add to it in place. It returns the
-- gradients of the inputs by position.
local function both(_, g) return {g, g} end

function rules.add(node, g)
  local a, b = node.inputs[1], node.inputs[2]
  if not is_tensor(g) then return both(node, g) end
  return {a and needs_grad(a) and sum_to(g, a) or nil, b and needs_grad(b) and sum_to(g, b) or nil}
end
function rules.sub(node, g)
  local a, b = node.inputs[1], node.inputs[2]
  if not is_tensor(g) then return {g, -g} end
  return {a and needs_grad(a) and sum_to(g, a) or nil, b and needs_grad(b) and sum_to(-g, b) or nil}
end
function rules.neg(_, g) return {-g} end
function rules.mul(node, g)
  local number = attribute(node, "a_number") or attribute(node, "b_number")
  if number then return {node.inputs[1] and g * number, node.inputs[2] and g * number} end
  return pointwise(node, g)
end
function rules.div(node, g)
  local number = attribute(node, "b_number")
  if number then return {g / number} end
  return pointwise(node, g)
end
rules["where"] = function(node, g)
  local cond, a, b = unpack(node.inputs, 1, 3)
  g = as_tensor(g, node.results[1])
  return {nil, needs_grad(a) and sum_to(cond:where(g, 0), a) or nil, needs_grad(b) and sum_to(cond:where(0, g), b) or nil}
end

function rules.reshape(node, g) return {as_tensor(g, node.results[1]):reshape(node.inputs[1].shape)} end
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
  local dx = ops.call("full_like", x, 0)
  return {dx:assign_(as_tensor(g, node.results[1]), start)}
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

-- dy with its reduced axes put back as size 1, and y likewise.
local function keepdim(node, t)
  local x, shape, reduced = node.inputs[1], {}, attribute(node, "axis")
  if type(reduced) == "number" then reduced = {reduced} end
  for i, size in ipairs(x.shape) do shape[i] = reduced and size or 1 end
  for _, axis in ipairs(reduced or {}) do shape[axis > 0 and axis or #x.shape + 1 + axis] = 1 end
  return t:reshape(shape)
end
function rules.sum(node, g) return {keepdim(node, as_tensor(g, node.results[1])):expand(node.inputs[1].shape)} end
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
function rules.prod(node, g)
  local x, y = node.inputs[1], node.results[1]
  return {keepdim(node, as_tensor(g, y) * y) / x}
end

function rules.softmax(node, g) return {as_tensor(g, node.results[1]):softmax_backward(node.results[1])} end
function rules.log_softmax(node, g) return {as_tensor(g, node.results[1]):log_softmax_backward(node.results[1])} end
function rules.logsumexp(node, g)
  local x, shape = node.inputs[1], {}
  for i, size in ipairs(x.shape) do shape[i] = i == #x.shape and 1 or size end
  return {x:softmax() * as_tensor(g, node.results[1]):reshape(shape)}
end

function rules.gather(node, g)
  local x, index = node.inputs[1], node.inputs[2]
  local axis = attribute(node, "axis") or -1
  return {as_tensor(g, node.results[1]):scatter_add(index, {size = x:dim(axis), axis = axis})}
end
function rules.scatter_add(node, g)
  return {as_tensor(g, node.results[1]):gather(node.inputs[2], {axis = attribute(node, "axis") or -1})}
end
function rules.dropout(node, g)
  return {as_tensor(g, node.results[1]):dropout {p = attribute(node, "p"), counter = attribute(node, "counter"), seed = attribute(node, "seed")}}
end

local function matmul_batched(node, g)
  local x, w = node.inputs[1], node.inputs[2]
  local tx, tw = attribute(node, "trans_x") or false, attribute(node, "trans_w") or false
  local dx = tx and w:matmul(g, {trans_x = tw, trans_w = true}) or g:matmul(w, {trans_w = not tw})
  local dw = tw and g:matmul(x, {trans_x = true, trans_w = tx}) or x:matmul(g, {trans_x = not tx})
  return {sum_to(dx, x), sum_to(dw, w)}
end
function rules.matmul(node, g)
  local x, w = node.inputs[1], node.inputs[2]
  g = as_tensor(g, node.results[1])
  if #x.shape == 1 or #w.shape == 1 then   -- as matrices, and back
    local tx, tw = #x.shape > 1 and attribute(node, "trans_x"), #w.shape > 1 and attribute(node, "trans_w")
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
                         values = {[position.trans_x] = tx or false, [position.trans_w] = tw or false}}
    local out = matmul_batched(as_matrices, g:reshape(shape))
    return {out[1]:reshape(x.shape), out[2]:reshape(w.shape)}
  end
  return matmul_batched(node, g)
end

function rules.linear(node, g, into)
  local x, weight, bias = unpack(node.inputs, 1, 3)
  g = as_tensor(g, node.results[1])
  local pre = attribute(node, "gelu") and node.results[2] or nil
  local dweight_before, dbias_before = into(2), bias and into(3)
  local dx, dweight, dbias = ops.call("linear_backward", g, x, weight,
    {pre = pre, dweight = dweight_before, dbias = dbias_before, bias = bias ~= nil, need_dx = needs_grad(x)})
  return {dx, dweight_before or dweight, dbias_before or dbias}
end

function rules.layernorm(node, g, into, g_s)
  local x, weight, bias, delta = unpack(node.inputs, 1, 4)
  local y, s, stats = unpack(node.results, 1, 3)
  if not g then   -- only the residual sum was used
    return {g_s, nil, nil, delta and g_s}
  end
  local dweight_before, dbias_before = into(2), bias and into(3)
  if bias and not (dweight_before and dbias_before) then dweight_before, dbias_before = nil, nil end
  local dx, dweight, dbias = ops.call("layernorm_backward", as_tensor(g, y), s, stats, weight,
    {ds = g_s and as_tensor(g_s, s), dweight = dweight_before, dbias = dbias_before, bias = bias ~= nil})
  return {dx, dweight_before or dweight, dbias_before or dbias, delta and dx}
end

function rules.attention(node, g)
  local o, stats = node.results[1], node.results[2]
  local options = {}
  for _, declared in ipairs(node.op.attributes) do options[declared.name] = attribute(node, declared.name) end
  return {ops.call("attention_backward", as_tensor(g, o), node.inputs[1], o, stats, options)}
end

function rules.embedding(node, g, into)
  local ids, tokens, positions = unpack(node.inputs, 1, 3)
  local dtokens_before, dpositions_before = into(2), positions and into(3)
  local dtokens, dpositions = ops.call("embedding_backward", as_tensor(g, node.results[1]), ids, tokens,
    {positions = positions, dtokens = dtokens_before, dpositions = dpositions_before, start = attribute(node, "start")})
  return {nil, dtokens_before or dtokens, dpositions_before or dpositions}
end

function rules.cross_entropy(node, g)
  local logits, targets = unpack(node.inputs, 1, 2)
  local dlogits = ops.call("cross_entropy_backward", logits, targets, node.results[2], node.results[3],
                           {ignore_index = attribute(node, "ignore_index")})
  if g == 1 then return {dlogits} end
  return {dlogits * (is_tensor(g) and g:to(dlogits.dtype) or g)}
end

-- Its gradients were computed in the forward pass, for dloss = 1.
function rules.linear_cross_entropy(node, g)
  local dhidden, dweight = node.results[2], node.results[3]
  if not dhidden then
    lib.fail("linear_cross_entropy: called with gradient = false, so there is no gradient to take")
  end
  if g == 1 then return {dhidden, dweight} end
  return {dhidden * g, dweight * g}
end

-- Gradients (by input) that belong to the tape alone, so that later ones may be added to them in
-- place.
local fresh = {
  linear = {false, true, true}, layernorm = {false, true, true}, embedding = {false, true, true},
  linear_cross_entropy = {false, true},
}

local touched   -- leaves whose grad was set since watch() began: compile.lua restores them

--- Notes which leaves get gradients while f runs and puts their earlier gradients back afterwards.
function M.with_private_grads(f)
  local outer = touched
  touched = {}
  local ok, result = pcall(f)
  for leaf, before in pairs(touched) do
    leaf.grad, leaf.grad_owned = before.grad, before.owned
  end
  touched = outer
  if not ok then error(result, 0) end
  return result
end

local function set_leaf_grad(leaf, g, owned)
  if touched and not touched[leaf] then touched[leaf] = {grad = leaf.grad, owned = leaf.grad_owned} end
  leaf.grad, leaf.grad_owned = g, owned
end
M.set_leaf_grad = set_leaf_grad

-- Nodes that the result depends on, newest first.
local function nodes_behind(root)
  local seen, list, stack = {}, {}, {root}
  while #stack > 0 do
    local node = table.remove(stack)
    if not seen[node] then
      seen[node] = true
      if node.freed then
        lib.fail("backward: these results were already walked; compute the loss again (or use retain = true)")
      end
      list[#list + 1] = node
      for i = 1, table.maxn(node.inputs) do
        local x = node.inputs[i]
        if x and x.node then stack[#stack + 1] = x.node end
      end
    end
  end
  table.sort(list, function(a, b) return a.sequence > b.sequence end)
  return list
end

-- Adds a gradient to what an input has: on its node for a result, in .grad for a leaf.
local function accumulate(x, g, is_fresh)
  if x.node then
    local pending = x.node.grads
    local before = pending[x.output]
    pending[x.output] = before == nil and g or before + g
    return
  end
  if not x.requires_grad then return end
  g = as_tensor(g, x)
  if not x.grad then
    set_leaf_grad(x, g, is_fresh)
  elseif x.grad ~= g then
    local sum = x.grad_owned and x.grad:add_(g) or x.grad + g
    set_leaf_grad(x, sum, true)
  end
end

--- loss:backward({retain=false}) computes the gradient of a one-element tensor in every leaf it
--- depends on and adds it to their .grad. The tape behind it is freed unless retain is set.
function Tensor:backward(options)
  if self:count() ~= 1 then
    lib.misuse("backward: the tensor is %s; only a loss of one element has a gradient", tensor.shape_text(self.shape))
  end
  if not self.node then
    lib.misuse("backward: the tensor does not depend on anything that needs a gradient (grad = true)")
  end
  local retain = options and options.retain
  M.no_grad(function()
    local list = nodes_behind(self.node)
    for _, node in ipairs(list) do node.grads = {} end
    self.node.grads[self.output] = 1
    for _, node in ipairs(list) do
      local rule = rules[node.op.name] or pointwise
      if next(node.grads) then
        local function into(i)
          local x = node.inputs[i]
          if x.node == nil and x.grad and x.grad_owned and x.grad.dtype ~= "bf16" then return x.grad end
        end
        local grads = rule(node, node.grads[1], into, node.grads[2])
        for i = 1, table.maxn(node.inputs) do
          local x = node.inputs[i]
          if grads[i] and needs_grad(x) then accumulate(x, grads[i], fresh[node.op.name] and fresh[node.op.name][i]) end
        end
      end
      node.grads = nil
      if not retain then node.freed, node.inputs, node.results = true, {}, {} end
    end
  end)
end

--- nn.grad(f)(x, ...) -> value, gradients: f's value and the gradient in each argument (tensors, or
--- nested tables of tensors, which give tables of the same shape). f must return a tensor of one
--- element.
function M.grad(f)
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
  local function gradients(value)
    if is_tensor(value) then return value.grad end
    if type(value) ~= "table" then return nil end
    local out = {}
    for k, v in pairs(value) do out[k] = gradients(v) end
    return out
  end
  return function(...)
    local arguments, n = {...}, select("#", ...)
    for i = 1, n do arguments[i] = leaves(arguments[i]) end
    local loss = f(unpack(arguments, 1, n))
    loss:backward()
    local out = {}
    for i = 1, n do out[i] = gradients(arguments[i]) end
    return loss:detach(), unpack(out, 1, n)
  end
end

--- Rule of a user's own op: nn.gradient_rule("name", function(node, g) ... return {dx, ...} end).
function M.gradient_rule(name, rule) rules[name] = rule end

return M
