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

-- Marks results that depend on a gradient, through which backward() cannot go.
local function mark_results(op, inputs, results, count)
  for i = 1, enabled and not op.in_place and table.maxn(inputs) or 0 do
    if is_tensor(inputs[i]) and inputs[i].from_grad then
      for k = 1, count do
        if results[k] and op.outputs[k].differentiable then results[k].from_grad = true end
      end
      return
    end
  end
end

ops.set_recorder(function(op, inputs, values, results, count)
  if watcher then watcher(results, count) end
  if not is_wanted(inputs) then return mark_results(op, inputs, results, count) end
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
      leaf.grad, leaf.grad_owned, leaf.grad_used = touched[leaf].grad, touched[leaf].owned, nil
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
-- leaf.grad_used: "once" after an optimizer's step used the gradient; "added to" if backward() then
-- added to it.
local function set_leaf_grad(leaf, g, owned)
  if touched and not touched[leaf] then
    touched[leaf] = {grad = leaf.grad, owned = leaf.grad_owned}
    touched[#touched + 1] = leaf
  end
  leaf.grad, leaf.grad_owned, leaf.grad_used = g, owned, nil
  if g then g.from_grad = true end
end
M.set_leaf_grad = set_leaf_grad

--- replace_grad(leaf, g): sets the gradient to one computed from it.
function M.replace_grad(leaf, g)
  local used = leaf.grad_used
  set_leaf_grad(leaf, g, true)
  leaf.grad_used = used
end

--- use_grad(leaf) -> whether the gradient that an optimizer uses now contains one that it used
--- before.
function M.use_grad(leaf)
  local used = leaf.grad_used
  leaf.grad_used = "once"
  return used == "added to"
end

--- Calls f. For each op inside, calls seen(results, count); for each node that a backward() finds
--- on the tape, seen(results, count, true).
function M.watch(seen, f)
  local outer = watcher
  watcher = seen
  return lib.finally(function() watcher = outer end, f)
end

local function refuse_second()
  lib.misuse("backward: second derivatives are not supported: the loss depends on a gradient "
             .. "(w.grad, or a result of nn.grad); use g:detach() where it is a constant. The "
             .. "difference of two gradients approximates a second derivative")
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
        if is_tensor(x) then
          if x.node then
            stack[#stack + 1] = x.node
          elseif x.from_grad and not x.requires_grad then
            refuse_second()
          end
        end
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

-- before + g, in f32 if both are bf16, and in place if nothing else references `before`.
local function sum(before, is_owned, g)
  if before.dtype == "bf16" and g.dtype == "bf16" then before, is_owned = before:to "f32", true end
  return is_owned and before.dtype == g.dtype and before:add_(g) or before + g
end

--- add_grad(leaf, g, owned): adds to the gradient of a leaf. owned: only the caller references g.
function M.add_grad(leaf, g, owned)
  if not leaf_grad(leaf) then
    return set_leaf_grad(leaf, g, owned)
  end
  if not (owned and rawequal(leaf.grad, g)) then
    M.replace_grad(leaf, sum(leaf.grad, leaf.grad_owned, g))
  end
  if leaf.grad_used then leaf.grad_used = "added to" end
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

local backward_options = arguments.names "retain retain_graph create_graph"

-- The gradient with which backward() of x starts: the given one, or 1.
local function checked_start(x, given)
  if given == nil then
    if x:count() == 1 then return 1 end
    lib.misuse("backward: the tensor is %s; only a loss of one element has a gradient. Give the "
               .. "gradient of the result, y:backward(g) with g of y's shape, or use "
               .. "y:sum():backward()", tensor.shape_text(x.shape))
  end
  arguments.need(is_tensor(given), "backward", "the gradient", given, "a tensor is needed")
  local shape, own = tensor.shape_text(given.shape), tensor.shape_text(x.shape)
  if shape ~= own or given.dtype ~= x.dtype then
    lib.misuse("backward: the gradient is %s %s, the tensor %s %s; they must be the same",
               given.dtype, shape, x.dtype, own)
  end
  return M.no_grad(function() return given:clone() end)
end

--- x:backward(gradient, {retain=false}) computes the gradient with respect to every leaf that x
--- depends on, adds it to the leaf's .grad, and frees the tape unless retain is set. gradient: that
--- of x, of its shape; not needed if x has one element. Errors: no gradient and more than one
--- element; x depends on no tensor that requires a gradient; a second call; x depends on a gradient
--- (second derivatives are not supported).
---     local w = nn.tensor({1, 2}, {grad = true})
---     w:square():sum():backward()
---     w:square():backward(nn.tensor{1, 0})
---     w.grad  --> {4, 4}
function Tensor:backward(gradient, options)
  if type(gradient) == "table" and getmetatable(gradient) == nil then
    gradient, options = nil, gradient
  end
  options = arguments.options("backward", options, backward_options)
  if options.create_graph then
    lib.misuse("backward: second derivatives are not supported, so there is no create_graph; the "
               .. "difference of two gradients approximates a second derivative")
  end
  local retain, start = options.retain or options.retain_graph, checked_start(self, gradient)
  if not self.node then
    if self.from_grad then refuse_second() end
    lib.misuse("backward: the tensor does not depend on anything that needs a gradient "
               .. "(grad = true)")
  end
  M.no_grad(function()
    local list = nodes_behind(self.node)
    for _, node in ipairs(list) do
      if watcher then watcher(node.results, node.count, true) end
      node.grads, node.retained = {}, retain
    end
    self.node.grads[self.output] = start
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
