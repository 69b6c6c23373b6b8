-- The tape: a node records every differentiable application of an op. backward() visits the nodes
-- in reverse order, and the rules of gradient_rules.lua give the gradients of each op's inputs.

local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local rules = require "nn.core.gradient_rules"
local suggest = require "nn.base.suggest"
local tensor = require "nn.core.tensor"
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor
local needs_grad = rules.needs_grad

local M = {}
local enabled, sequence = true, 0

--- nn.grad_enabled() -> whether ops are recorded on the tape (false inside nn.no_grad).
---     nn.grad_enabled(), nn.no_grad(nn.grad_enabled)  --> true, false
function M.grad_enabled() return enabled end
ops.grad_enabled = M.grad_enabled

--- nn.no_grad(f, ...) -> f(...), without recording on the tape: no memory is kept for gradients,
--- and tensors that require a gradient can be changed in place.
---     local w = nn.tensor({1, 2}, {grad = true})
---     nn.no_grad(function() w:fill_(3) end)
---     w  --> {3, 3}
function M.no_grad(f, ...)
  arguments.callable("no_grad", f)
  local before = enabled
  enabled = false
  return lib.finally(function() enabled = before end, f, ...)
end

local function is_wanted(inputs)
  for i = 1, enabled and table.maxn(inputs) or 0 do
    if needs_grad(inputs[i]) then return true end
  end
  return false
end

local watcher   -- the function that watch() set

ops.set_recorder(function(op, inputs, values, results, count)
  if watcher then watcher(results, count) end
  if not is_wanted(inputs) then return end
  sequence = sequence + 1
  local node = {op = op, inputs = inputs, values = values, results = {}, count = count,
                sequence = sequence, layer = layer.now}
  for i = 1, count do
    if results[i] then
      -- The node keeps its results without their own node: no cycle holds tensors longer than the
      -- tape does.
      node.results[i] = results[i]:detach()
      if op.outputs[i].differentiable and results[i].dtype:match("f") then
        results[i].node, results[i].output = node, i
      end
    end
  end
end)

-- In with_private_grads: {[leaf] = its gradient before the first change}, and the leaves in order,
-- which must be the same on every rank.
local touched

--- with_private_grads(f) -> f(). Then restores the gradients of all leaves whose gradient f set.
function M.with_private_grads(f)
  local outer = touched
  touched = {}
  return lib.finally(function()
    for _, leaf in ipairs(touched) do
      leaf.grad, leaf.grad_owned = touched[leaf].grad, touched[leaf].owned
    end
    touched = outer
  end, f)
end

--- each_private_grad(f): calls f(gradient) for the leaves whose gradient was set in the innermost
--- with_private_grads.
function M.each_private_grad(f)
  for _, leaf in ipairs(touched) do
    if leaf.grad then f(leaf.grad) end
  end
end

--- grads_of(f) -> a list of {leaf=, grad=, owned=}: the gradients that f computes, starting from
--- none, in the order in which f first set them. The leaves keep the gradients from before.
function M.grads_of(f)
  local found = {}
  M.with_private_grads(function()
    local own = touched
    f()
    for _, leaf in ipairs(own) do
      if leaf.grad then
        found[#found + 1] = {leaf = leaf, grad = leaf.grad, owned = leaf.grad_owned}
      end
    end
  end)
  return found
end

-- Sets a leaf's gradient. Every change goes through here, so that with_private_grads can undo it.
local function set_leaf_grad(leaf, g, owned)
  if touched and not touched[leaf] then
    touched[leaf] = {grad = leaf.grad, owned = leaf.grad_owned}
    touched[#touched + 1] = leaf
  end
  leaf.grad, leaf.grad_owned = g, owned
end
M.set_leaf_grad = set_leaf_grad

--- Calls f. For each op inside, calls seen(results, count); for each node that a backward() finds
--- on the tape, seen(results, count, true).
function M.watch(seen, f)
  local outer = watcher
  watcher = seen
  return lib.finally(function() watcher = outer end, f)
end

-- The nodes that the result depends on, newest first.
local function nodes_behind(root)
  local seen, list, stack = {}, {}, {root}
  while #stack > 0 do
    local node = table.remove(stack)
    if not seen[node] then
      seen[node] = true
      if node.freed then
        lib.deny("backward: the tape of this loss was already used and freed; compute the loss "
                 .. "again, or pass {retain = true} to the first backward()")
      end
      list[#list + 1] = node
      for i = 1, table.maxn(node.inputs) do
        local x = node.inputs[i]
        if is_tensor(x) and x.node then stack[#stack + 1] = x.node end
      end
    end
  end
  table.sort(list, function(a, b) return a.sequence > b.sequence end)
  return list
end

-- The gradient of a leaf so far. A compiled function must not read a gradient from outside: every
-- call would use the one from the time of recording.
local function leaf_grad(x)
  if touched and not touched[x] and x.grad then set_leaf_grad(x, nil) end
  return x.grad
end

-- before + g, in place if nothing else references `before`.
local function sum(before, is_owned, g)
  return is_owned and before.dtype == g.dtype and before:add_(g) or before + g
end

--- add_grad(leaf, g, owned): adds to the gradient of a leaf. owned: only the caller references g.
function M.add_grad(leaf, g, owned)
  if not leaf_grad(leaf) then
    set_leaf_grad(leaf, g, owned)
  elseif not (owned and rawequal(leaf.grad, g)) then
    set_leaf_grad(leaf, sum(leaf.grad, leaf.grad_owned, g), true)
  end
end

--- sum_of_grads(a, b) -> the sums of two results of grads_of(). May change a.
function M.sum_of_grads(a, b)
  local entry_of = {}
  for _, entry in ipairs(a) do entry_of[entry.leaf] = entry end
  for _, entry in ipairs(b) do
    local first = entry_of[entry.leaf]
    if first then
      first.grad, first.owned = sum(first.grad, first.owned, entry.grad), true
    else
      a[#a + 1] = entry
    end
  end
  return a
end

-- Adds a gradient to that of an input: on its node for a result, in .grad for a leaf. Only the tape
-- references an `owned` gradient, so later ones may be added to it in place; if it is x.grad
-- itself, a backward op has already done so.
local function accumulate(x, g, owned)
  if x.node then
    local pending = x.node.grads
    local before = pending[x.output]
    pending[x.output] = before == nil and g or before + g
    return
  end
  if not x.requires_grad then return end
  M.add_grad(x, rules.as_tensor(g, x), owned)
end

-- Applies the rule of a node's op and accumulates the gradients of its inputs.
local function propagate(node)
  local op = node.op
  local function into(i)
    local x = node.inputs[i]
    if x.node ~= nil or not leaf_grad(x) then return nil end
    if x.grad_owned and x.grad.dtype ~= "bf16" then return x.grad end
  end
  local rule = node.rule or rules.rule_of(op.name)
  local grads = rule(node, node.grads[1], into, node.grads[2])
  for i = 1, table.maxn(node.inputs) do
    local x = node.inputs[i]
    if grads[i] and needs_grad(x) then
      accumulate(x, grads[i], op.inputs[i] ~= nil and op.inputs[i].accumulates)
    end
  end
end

--- x:backward({retain=false}) computes the gradient of a one-element tensor with respect to every
--- leaf it depends on, adds it to the leaf's .grad, and frees the tape unless retain is set.
--- Errors: more than one element; x depends on no tensor that requires a gradient; a second call.
---     local w = nn.tensor({1, 2}, {grad = true})
---     w:square():sum():backward()
---     w.grad  --> {2, 4}
function Tensor:backward(options)
  if self:count() ~= 1 then
    lib.misuse("backward: the tensor is %s; only a loss of one element has a gradient",
               tensor.shape_text(self.shape))
  end
  if not self.node then
    lib.misuse("backward: the tensor does not depend on anything that needs a gradient "
               .. "(grad = true); nor does a gradient: there are no second derivatives")
  end
  local retain = arguments.options("backward", options, {retain = true}).retain
  M.no_grad(function()
    local list = nodes_behind(self.node)
    for _, node in ipairs(list) do
      if watcher then watcher(node.results, node.count, true) end
      node.grads, node.retained = {}, retain
    end
    self.node.grads[self.output] = 1
    local before, recording = layer.now, engine.recording()
    if recording then lib.check(lib.C.nn_record_backward(1)) end
    for _, node in ipairs(list) do
      if node.layer ~= layer.now then layer.set(node.layer) end
      if next(node.grads) then propagate(node) end
      node.grads = nil
      if not retain then node.freed, node.inputs, node.results, node.rule = true, {}, {}, nil end
    end
    if layer.now ~= before then layer.set(before) end
    if recording then lib.check(lib.C.nn_record_backward(0)) end
  end)
end

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
--- return a tensor of one element.
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
    return loss:detach(), unpack(out, 1, n)
  end
end

local custom_op = {name = "custom", inputs = {}, attributes = {}}
local custom_options = arguments.names "name forward backward"

-- Checks the results of a custom function's backward: gradients have the shapes of the inputs.
local function checked_gradients(who, inputs, ...)
  local grads = {...}
  for i = 1, table.maxn(inputs) do
    local x, g = inputs[i], grads[i]
    if g ~= nil and needs_grad(x) then
      arguments.need(is_tensor(g), who, "gradient " .. i, g, "a tensor or nil is needed")
      local given, wanted = tensor.shape_text(g.shape), tensor.shape_text(x.shape)
      if given ~= wanted then
        lib.misuse("%s: gradient %d is %s, argument %d is %s", who, i, given, i, wanted)
      end
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
    local saved, inputs = {M.no_grad(forward, ...)}, {}
    for i = 1, select("#", ...) do
      local x = select(i, ...)
      inputs[i] = is_tensor(x) and x or nil
    end
    arguments.need(is_tensor(saved[1]), who, "forward's result", saved[1], "a tensor is needed")
    local y = saved[1]:detach()   -- which may be an input
    if not is_wanted(inputs) or not y.dtype:match "f" then return y end
    local n = table.maxn(saved)
    for i = 2, n do
      if rawequal(saved[i], saved[1]) then saved[i] = y:detach() end   -- without y's node: no cycle
    end
    sequence = sequence + 1
    y.output, y.node = 1, {
      op = custom_op, inputs = inputs, values = {}, results = {y:detach()}, count = 1,
      sequence = sequence, layer = layer.now,
      rule = function(node, g)
        g = rules.as_tensor(g, node.results[1])
        return checked_gradients(who, inputs, backward(g, unpack(saved, 2, n)))
      end,
    }
    return y
  end
end

--- nn.gradient_rule(name, rule) replaces the gradient rule of an op. rule(node, g) returns the
--- gradients of the op's inputs; g is the gradient of its result (see gradient_rules.lua). For your
--- own functions, use nn.custom. Errors: an unknown op.
---     nn.gradient_rule("floor", function(node, g) return {g} end)
function M.gradient_rule(name, rule)
  if not ops.ops[name] then
    lib.misuse("gradient_rule: unknown op '%s'%s", tostring(name),
               suggest.suggestion(name, ops.ops))
  end
  rules.set(name, arguments.callable("gradient_rule", rule))
end

return M
