-- What all optimizers share: groups of parameters, their states, the step. The learning rates and
-- the step number are scalars, which recorded tasks read at submission, so a compiled step follows
-- the learning-rate schedule.

local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local hints = require "nn.base.hints"
local lib = require "nn.base.capi"
local kind = require "nn.core.kind"
local tape = require "nn.core.tape"
local layer = require "nn.core.layer_path"
local leaves = require "nn.core.leaf_gradients"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local scalar = require "nn.core.scalar"

local M = {}
local shared_options = "lr weight_decay clip skip_nonfinite decay_filter "
local group_options = arguments.names "params lr weight_decay"

-- Weight decay applies to matrices, not to biases and norms, which have one axis (as in nanoGPT).
-- That of a group applies to all its parameters.
local function decay_of(parameter, group, options)
  if group.given_decay then return group.given_decay end
  local filter, decays = options.decay_filter, #parameter.tensor.shape >= 2
  if filter then decays = filter(parameter) end
  return decays and options.weight_decay or 0
end

-- A group of parameters: {parameters=, rate=, lr=}; lr can be set.
local Group = {type_name = "group of parameters"}
Group.__index = function(self, key)
  if key ~= "lr" then return Group[key] end
  scalar.check_outside("lr", "groups[i].rate is the nn.scalar of the rate")
  return self.rate:get()
end
Group.__newindex = function(self, key, value)
  if key ~= "lr" then
    lib.misuse("groups: '%s' of a group cannot be set, only lr", tostring(key))
  end
  scalar.check_outside("lr", "set it before the call")
  self.rate:set(arguments.number("groups", {lr = value}, "lr", nil, 0))
end
Group.__tostring = function(self)
  return ("%d parameters: lr=%g"):format(#self.parameters, scalar.value_of(self.rate))
end

-- lr: a number or an nn.scalar.
local function rate_of(name, lr)
  local given = scalar.is_scalar(lr)
  local number = arguments.number(name, {lr = given and scalar.value_of(lr) or lr}, "lr", nil, 0)
  return given and lr or scalar.scalar(number)
end

local function new_group(name, entries, options, default_lr)
  local decay, lr = options.weight_decay, options.lr
  if lr == nil then lr = default_lr end
  return setmetatable({
    parameters = entries,
    rate = rate_of(name, lr),
    given_decay = decay and arguments.number(name, options, "weight_decay", nil, 0),
  }, Group)
end

-- Whether an optimizer is given groups, {{params = ..., lr = ...}, ...}.
local function has_groups(model)
  local first = type(model) == "table" and getmetatable(model) == nil and model[1]
  return type(first) == "table" and getmetatable(first) == nil and first.params ~= nil
end

-- The groups of what an optimizer is given. A path that an earlier group has gets the number of the
-- group as a prefix.
local function groups_of(name, model, lr)
  if not has_groups(model) then return {new_group(name, module.entries(name, model), {}, lr)} end
  local groups, group_of, taken = {}, {}, {}
  for g = 1, arguments.list(name, "the list of groups", model) do
    local who = ("%s: group %d"):format(name, g)
    local given, entries = arguments.options(who, model[g], group_options), {}
    for i, p in ipairs(module.entries(who, given.params)) do
      if group_of[p.tensor] then
        lib.misuse("%s: '%s' is in group %d, too", who, p.path, group_of[p.tensor])
      end
      local path = taken[p.path] and g .. "." .. p.path or p.path
      group_of[p.tensor], taken[path] = g, true
      entries[i] = {path = path, tensor = p.tensor}
    end
    groups[g] = new_group(who, entries, given, lr)
  end
  return groups
end

local Optimizer = {}       -- methods of every class

-- The learning rate of all groups. Groups with different rates are set one by one.
local function set_lr(self, name, value)
  arguments.number(name, {lr = value}, "lr", nil, 0)
  for i, group in ipairs(self.groups) do
    if group.lr ~= self.lr then
      lib.misuse("%s: groups 1 and %d have different rates, %g and %g; set optim.groups[%d].lr, or "
                 .. "use a scheduler such as nn.StepLR", name, i, self.lr, group.lr, i)
    end
  end
  for _, group in ipairs(self.groups) do group.lr = value end
end

--- class{type_name=, state_names=, default_lr=, masters=, start=} -> a class of optimizers. Its
--- objects need a method update(parameter, norm, number). state_names: states of each parameter,
--- which start as `start` or 0. masters: bf16 parameters have a master weight in f32. `optim.lr`
--- reads and sets the scalars. The other settings are read-only, because they are constants in
--- recorded steps.
function M.class(methods)
  local name = methods.type_name
  methods.__index = function(self, key)
    if key == "lr" then return rawget(self, "groups")[1].lr end
    local setting = rawget(self, "settings")[key]
    if setting ~= nil then return setting end
    local found = methods[key] or Optimizer[key]
    local hint = found == nil and hints.equivalent("optimizer", key)
    if hint then lib.misuse("%s has no '%s'%s", name, key, hint) end
    return found
  end
  methods.__newindex = function(self, key, value)
    if key == "lr" then return set_lr(self, name, value) end
    lib.misuse("%s: '%s' cannot be set, only lr; give it to the constructor: nn.%s(model, {...})",
               name, tostring(key), name)
  end
  methods.__tostring = function(self)
    local parts, rates = {}, {}
    for i, group in ipairs(self.groups) do
      rates[i] = ("%g"):format(scalar.value_of(group.rate))
    end
    parts[1] = "lr=" .. table.concat(rates, ",")
    for key, value in pairs(self.settings) do parts[#parts + 1] = key .. "=" .. tostring(value) end
    table.sort(parts)
    return ("%s of %d parameters: %s"):format(name, #self.parameters, table.concat(parts, ", "))
  end
  return methods
end

-- A state of a parameter p in the optimizer's dtype, filled with `value`.
local function new_state(p, value)
  local options = p.tensor.dtype == "bf16" and {dtype = "f32"} or {}
  local state = ops.call("full_like", p.tensor, value, options)
  kind.set(state, "optimizer")
  cluster.own(state, p.tensor)
  return state
end

-- The states of a parameter: tensors by name, decay, stochastic, and the dtype of the parameter.
local function states_of(self, p, decay)
  local out = {decay = decay, dtype = p.tensor.dtype}
  for _, name in ipairs(self.state_names) do out[name] = new_state(p, self.start or 0) end
  local bf16 = p.tensor.dtype == "bf16"
  out.stochastic = bf16 and self.rounding == "stochastic"
  if bf16 and self.masters and not out.stochastic then
    out.master = new_state(p, 0)
    tape.no_grad(function() out.master:copy_(p.tensor) end)
  end
  return out
end

--- new(class, model, options, names, settings, fields) -> an optimizer of a class. names: the
--- options that the class has beside the shared ones. settings(options): those of the class, by
--- name. fields(settings): fields of the object that replace those of the class.
function M.new(class, model, options, names, settings, fields)
  local name = class.type_name
  options = arguments.options(name, options, arguments.names(shared_options .. names))
  local lr = options.lr
  if lr == nil then lr = class.default_lr end
  rate_of(name, lr)                      -- checks it, also if every group has its own
  local own = settings(options)
  own.clip = arguments.number(name, options, "clip", 0, 0)
  own.weight_decay = arguments.number(name, options, "weight_decay", 0, 0)
  own.skip_nonfinite = arguments.flag(name, options, "skip_nonfinite", false)
  local object = fields and fields(own) or {}
  object.groups, object.parameters, object.states = groups_of(name, model, lr), {}, {}
  object.count, object.settings = scalar.scalar(0), own
  local self = setmetatable(object, class)
  local decay_options = {weight_decay = own.weight_decay, decay_filter = options.decay_filter}
  for _, group in ipairs(self.groups) do
    for _, p in ipairs(group.parameters) do
      local state = states_of(self, p, decay_of(p, group, decay_options))
      state.rate = group.rate
      table.insert(self.parameters, p)
      table.insert(self.states, state)
    end
  end
  if #self.parameters == 0 then lib.misuse("%s: there are no parameters to train", name) end
  return self
end

-- The parameters that have a gradient, and the global norm of these gradients.
local function gradients(self)
  local with, grads, stale = {}, {}, false
  for i, p in ipairs(self.parameters) do
    if p.tensor.grad then
      if p.tensor.dtype ~= self.states[i].dtype then
        lib.misuse("%s: '%s' became %s after the optimizer was created; create it after model:to()",
                   self.type_name, p.path, p.tensor.dtype)
      end
      with[#with + 1] = {path = p.path, tensor = p.tensor, state = self.states[i]}
      grads[#grads + 1] = p.tensor.grad
      stale = leaves.use(p.tensor) or stale
    end
  end
  if #with == 0 then
    lib.misuse("%s: no parameter has a gradient; call loss:backward() first (in nn.compile, "
               .. "gradients are local to the function: call step() in it too)", self.type_name)
  end
  if stale then
    lib.warn_once("this step uses the gradients of an earlier step again, because backward() added "
                  .. "to them; call optim:zero_grad() before backward()")
  end
  return with, ops.call("grad_norm", grads)
end

--- optim:zero_grad() clears the gradients of all its parameters.
---     step(data.train:batch())
---     optim:zero_grad()
---     model.tok.weight.grad  --> nil
function Optimizer:zero_grad(options)
  options = arguments.options("zero_grad", options, {set_to_none = true})
  if options.set_to_none == false then
    lib.misuse "zero_grad: set_to_none is false, but cleared gradients are nil; leave it out"
  end
  for _, p in ipairs(self.parameters) do leaves.set(p.tensor, nil) end
end

--- optim:state() -> {{path=, tensor=}, ...}: moments and master weights, with the parameters' paths
--- as prefixes: the tensors of the optimizer that a checkpoint stores.
---     optim:state()[1].path  --> "tok.weight.m"
function Optimizer:state()
  local out, names = {}, {unpack(self.state_names)}
  names[#names + 1] = "master"
  for i, p in ipairs(self.parameters) do
    for _, name in ipairs(names) do
      local value = self.states[i][name]
      if value then out[#out + 1] = {path = p.path .. "." .. name, tensor = value} end
    end
  end
  return out
end

-- The number of the step and the rates, which a checkpoint stores; `lrs` only for several groups.
function Optimizer:numbers()
  local lrs = {}
  for i, group in ipairs(self.groups) do lrs[i] = group.lr end
  return {step = self.count:get(), lr = self.lr, lrs = #lrs > 1 and lrs or nil}
end
function Optimizer:set_numbers(values)
  arguments.need(type(values) == "table", "optimizer", "its state", values,
                 "{step=, lr=} is needed")
  arguments.whole("optimizer", "step", values.step, 0)
  local lrs = values.lrs or {values.lr}
  arguments.need(type(lrs) == "table" and #lrs == #self.groups, "optimizer", "its number of groups",
                 type(lrs) == "table" and #lrs or lrs, #self.groups .. " are needed")
  for i = 1, #lrs do
    arguments.need(type(lrs[i]) == "number" and lrs[i] >= 0, "optimizer", "lr", lrs[i],
                   "a number of at least 0 is needed")
  end
  self.count:set(values.step)
  for i, group in ipairs(self.groups) do group.lr = lrs[i] end
end

--- optim:step() -> the global gradient norm before clipping (a tensor). Updates every parameter
--- that has a gradient; gradients stay until zero_grad(). Warns once if gradients that an earlier
--- step used were not cleared. Errors: no parameter has one.
---     local w = nn.tensor({3, 4}, {grad = true})
---     local optim = nn.SGD({w}, {lr = 0.5})
---     w:square():sum():backward()
---     optim:step(), w  --> 10, {0, 0}
function Optimizer:step()
  return tape.no_grad(function()
    local with, norm = gradients(self)
    self.count:add(1)
    local number = engine.recording() and self.count or math.max(1, self.count:get())
    local before = layer.now
    -- Without the norm, a parameter is updated as soon as its own gradient is complete.
    local needed = (self.clip > 0 or self.skip_nonfinite) and norm or nil
    for _, p in ipairs(with) do
      layer.at_parameter(p.path)
      self:update(p, needed, number)
    end
    layer.set(before)
    return norm
  end)
end

return M
