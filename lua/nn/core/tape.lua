-- The tape: a node records every differentiable application of an op. backward() visits the nodes
-- in reverse order, and the rules of gradient_rules.lua give the gradients of each op's inputs.

local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local layer = require "nn.core.layer_path"
local leaves = require "nn.core.leaf_gradients"
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

-- Whether a node is needed for these inputs.
local function is_wanted(inputs)
  for i = 1, enabled and table.maxn(inputs) or 0 do
    if needs_grad(inputs[i]) then return true end
  end
  return false
end

-- Adds the tensors of lists to `list`.
local function add_tensors(list, given, count)
  for i = 1, count do
    if is_tensor(given[i]) then list[#list + 1] = given[i] end
  end
end

-- {handle = version} of tensors, by which backward() knows whether they changed since. x:detach()
-- has the handle of x.
local function versions_of(list)
  local numbers, versions = tensor.versions(list), {}
  for i, x in ipairs(list) do versions[x.ref] = numbers[i] end
  return versions
end

-- Adds to a node what all have.
local function begin_node(node, inputs)
  sequence = sequence + 1
  node.inputs, node.sequence, node.layer = inputs, sequence, layer.now
  return node
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
  local node = {op = op, values = values, results = {}, count = count}
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
  begin_node(node, inputs)
  local read = {}
  add_tensors(read, inputs, table.maxn(inputs))
  add_tensors(read, node.results, count)
  node.versions = versions_of(read)
end)

-- The tensors in a value, and in the plain tables of which it consists.
local function tensors_in(value, list, seen)
  if is_tensor(value) then
    list[#list + 1] = value
  elseif type(value) == "table" and getmetatable(value) == nil and not seen[value] then
    seen[value] = true
    for _, inner in pairs(value) do tensors_in(inner, list, seen) end
  end
  return list
end

local function refuse_changed(name, what, x)
  lib.misuse("backward: the gradient of %s needs its %s, %s %s, which was changed in place after "
             .. "the forward pass; change a clone() of it, or call backward() before", name, what,
             x.dtype, tensor.shape_text(x.shape))
end

--- custom_node(op, inputs, result, saved, rule) -> a node with a rule of its own, which reads the
--- values in the table `saved`; nil if no input needs a gradient.
function M.custom_node(op, inputs, result, saved, rule)
  if not is_wanted(inputs) then return nil end
  local list = tensors_in(saved, {}, {})
  local versions = versions_of(list)
  return begin_node({op = op, values = {}, results = {result}, count = 1, rule = function(node, g)
    for _, x in ipairs(list) do
      if tensor.versions {x}[1] ~= versions[x.ref] then
        refuse_changed(op.name, "saved value", x)
      end
    end
    return rule(node, g)
  end}, inputs)
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
  leaves.add(x, rules.as_tensor(g, x), owned)
end

-- "argument x" or "result y" of a tensor that a node's rule reads.
local function role_of(node, x)
  for kind, list in pairs {argument = node.inputs, result = node.results} do
    local declared = kind == "argument" and node.op.inputs or node.op.outputs
    for i = 1, table.maxn(list) do
      if is_tensor(list[i]) and list[i].ref == x.ref then
        return kind .. " " .. (declared[i] or declared[1]).name
      end
    end
  end
end

local visited                    -- the node whose rule is applied
-- Arguments of which an op reads the shape alone.
local shapes = {full_like = {x = true}, embedding_backward = {tokens = true, positions = true}}

-- Raises an error if an op of the rule reads a value of the node that changed since the forward
-- pass.
local function check_unchanged(op, inputs)
  local versions, unread = visited and visited.versions, shapes[op.name] or {}
  for i = 1, versions and table.maxn(inputs) or 0 do
    local x = inputs[i]
    local version = is_tensor(x) and versions[x.ref]
    local declared = op.inputs[i] or op.inputs[1]
    local is_read = version and not unread[declared.name] and not rawequal(x, visited.unread)
    if is_read and tensor.versions {x}[1] ~= version then
      refuse_changed(visited.op.name, role_of(visited, x), x)
    end
  end
end

-- Applies the rule of a node's op and accumulates the gradients of its inputs.
local function propagate(node)
  local op = node.op
  local function into(i)
    local x = node.inputs[i]
    if x.node ~= nil or not leaves.gradient(x) then return nil end
    if x.grad_owned and x.grad.dtype ~= "bf16" then return x.grad end
  end
  local rule = node.rule or rules.rule_of(op.name)
  visited = node
  local grads = rule(node, node.grads[1], into, node.grads[2])
  visited = nil
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
--- (second derivatives are not supported); a value that a gradient needs was changed in place.
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
  local outer, before = visited, ops.follow("unchanged", check_unchanged)
  lib.finally(function()
    ops.follow("unchanged", before)
    visited = outer
  end, M.no_grad, function()
    local list = nodes_behind(self.node)
    for _, node in ipairs(list) do
      if watcher then watcher(node.results, node.count, true) end
      node.grads, node.retained = {}, retain
    end
    self.node.grads[self.output] = start
    local around, recording = layer.now, engine.recording()
    if recording then lib.check(lib.C.nn_record_backward(1)) end
    for _, node in ipairs(list) do
      if node.layer ~= layer.now then layer.set(node.layer) end
      if next(node.grads) then propagate(node) end
      node.grads = nil
      if not retain then
        node.freed, node.inputs, node.results, node.rule, node.versions = true, {}, {}, nil, nil
      end
    end
    if layer.now ~= around then layer.set(around) end
    if recording then lib.check(lib.C.nn_record_backward(0)) end
  end)
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
