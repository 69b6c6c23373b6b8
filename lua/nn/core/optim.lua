-- Optimizers. The learning rate and the step number are scalars, which recorded tasks read at
-- submission, so a compiled step follows the learning-rate schedule.

local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local kind = require "nn.core.kind"
local tape = require "nn.core.tape"
local layer = require "nn.core.layer_path"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local scalar = require "nn.core.scalar"

local M = {}
local shared = "lr weight_decay clip skip_nonfinite decay_filter "
local adamw_options = arguments.names(shared .. "beta1 beta2 eps rounding")
local sgd_options = arguments.names(shared .. "momentum nesterov")

-- Weight decay applies to matrices, not to biases and norms, which have one axis (as in nanoGPT).
local function group_decay(parameter, options)
  local filter, decays = options.decay_filter, #parameter.tensor.shape >= 2
  if filter then decays = filter(parameter) end
  return decays and options.weight_decay or 0
end

local function number_option(name, options, key, default, low, high)
  local value = options[key]
  if value == nil then value = default end
  if type(value) ~= "number" or value < low or value > (high or math.huge) then
    lib.misuse("%s: %s is %s; a number %s is needed", name, key, tostring(value),
               high and ("from %g to %g"):format(low, high) or ("of at least %g"):format(low))
  end
  return value
end

local Optimizer = {}       -- methods of every class

-- `optim.lr` reads and sets the scalar. The other settings are read-only, because they are
-- constants in recorded steps.
local function class(methods)
  local name = methods.type_name
  methods.__index = function(self, key)
    if key == "lr" then return rawget(self, "rate"):get() end
    local setting = rawget(self, "settings")[key]
    if setting ~= nil then return setting end
    return methods[key] or Optimizer[key]
  end
  methods.__newindex = function(self, key, value)
    if key == "lr" then
      return self.rate:set(number_option(name, {lr = value}, "lr", nil, 0))
    end
    lib.misuse("%s: '%s' cannot be set, only lr; give it to the constructor: nn.%s(model, {...})",
               name, tostring(key), name)
  end
  methods.__tostring = function(self)
    local parts = {("lr=%g"):format(self.lr)}
    for key, value in pairs(self.settings) do parts[#parts + 1] = key .. "=" .. tostring(value) end
    table.sort(parts)
    return ("%s of %d parameters: %s"):format(name, #self.parameters, table.concat(parts, ", "))
  end
  return methods
end

local function new(methods, name, model, options)
  local self = setmetatable({
    parameters = module.entries(name, model),
    rate = scalar.scalar(number_option(name, options, "lr", methods.default_lr, 0)),
    count = scalar.scalar(0),
    settings = {
      clip = number_option(name, options, "clip", 0, 0),
      weight_decay = number_option(name, options, "weight_decay", 0, 0),
      skip_nonfinite = options.skip_nonfinite or false,
    },
    states = {},
  }, methods)
  if #self.parameters == 0 then lib.misuse("%s: there are no parameters to train", name) end
  local decay_options = {weight_decay = self.weight_decay, decay_filter = options.decay_filter}
  for _, p in ipairs(self.parameters) do
    local state = {decay = group_decay(p, decay_options), dtype = p.tensor.dtype}
    local state_options = p.tensor.dtype == "bf16" and {dtype = "f32"} or {}
    for _, state_name in ipairs(methods.state_names) do
      state[state_name] = ops.call("full_like", p.tensor, 0, state_options)
      kind.set(state[state_name], "optimizer")
      cluster.own(state[state_name], p.tensor)
    end
    state.stochastic = options.rounding == "stochastic" and p.tensor.dtype == "bf16"
    if methods.masters and p.tensor.dtype == "bf16" and not state.stochastic then
      state.master = ops.call("full_like", p.tensor, 0, state_options)
      kind.set(state.master, "optimizer")
      cluster.own(state.master, p.tensor)
      tape.no_grad(function() state.master:copy_(p.tensor) end)
    end
    self.states[#self.states + 1] = state
  end
  return self
end

-- The parameters that have a gradient, and the global norm of these gradients.
local function gradients(self)
  local with, grads = {}, {}
  for i, p in ipairs(self.parameters) do
    if p.tensor.grad then
      if p.tensor.dtype ~= self.states[i].dtype then
        lib.misuse("%s: '%s' became %s after the optimizer was created; create it after model:to()",
                   self.type_name, p.path, p.tensor.dtype)
      end
      with[#with + 1] = {path = p.path, tensor = p.tensor, state = self.states[i]}
      grads[#grads + 1] = p.tensor.grad
    end
  end
  if #with == 0 then
    lib.misuse("%s: no parameter has a gradient; call loss:backward() first (in nn.compile, "
               .. "gradients are local to the function: call step() in it too)", self.type_name)
  end
  return with, ops.call("grad_norm", grads)
end

--- optim:zero_grad() clears the gradients of all its parameters.
---     step(data.train:batch())
---     optim:zero_grad()
---     model.tok.weight.grad  --> nil
function Optimizer:zero_grad()
  for _, p in ipairs(self.parameters) do tape.set_leaf_grad(p.tensor, nil) end
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

function Optimizer:numbers() return {step = self.count:get(), lr = self.rate:get()} end
function Optimizer:set_numbers(values)
  arguments.need(type(values) == "table", "optimizer", "its state", values,
                 "{step=, lr=} is needed")
  arguments.whole("optimizer", "step", values.step, 0)
  local lr = values.lr
  arguments.need(type(lr) == "number" and lr >= 0, "optimizer", "lr", lr,
                 "a number of at least 0 is needed")
  self.count:set(values.step)
  self.rate:set(values.lr)
end

--- optim:step() -> the global gradient norm before clipping (a tensor). Updates every parameter
--- that has a gradient; gradients stay until zero_grad(). Errors: no parameter has one.
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

local AdamW = class {
  type_name = "AdamW", state_names = {"m", "v"}, masters = true, default_lr = 1e-3,
}

--- nn.AdamW(model, {lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, clip=0,
--- skip_nonfinite=false, rounding="nearest", decay_filter}): AdamW. model: a module, a list such as
--- model:parameters(), a list of tensors, or a table of tensors by name. weight_decay applies to
--- parameters of two or more axes, or to those for which decay_filter{path, tensor} is true. clip
--- limits the global gradient norm (0: no limit). skip_nonfinite: a step with a NaN or infinite
--- gradient changes nothing. A bf16 parameter has a master weight in f32, which steps update. With
--- rounding="stochastic" it has none, which saves 4 bytes per parameter, and is rounded
--- stochastically; the random numbers depend on the seed and the number of random ops before.
--- optim.lr can be set at any time, the other options only here. Errors: options out of range.
---     local layer = nn.Linear(3, 1)
---     local optim = nn.AdamW(layer, {lr = 0.01, weight_decay = 0.1, clip = 1})
---     optim.lr = 0.005
function M.AdamW(model, options)
  options = arguments.options("AdamW", options, adamw_options)
  local rounding = options.rounding or "nearest"
  if rounding ~= "nearest" and rounding ~= "stochastic" then
    lib.misuse('AdamW: rounding is %s; "nearest" or "stochastic" is needed', tostring(rounding))
  end
  local self = new(AdamW, "AdamW", model, options)
  local settings = self.settings
  settings.rounding = rounding
  settings.beta1 = number_option("AdamW", options, "beta1", 0.9, 0, 1)
  settings.beta2 = number_option("AdamW", options, "beta2", 0.999, 0, 1)
  settings.eps = number_option("AdamW", options, "eps", 1e-8, 0)
  return self
end

function AdamW:update(p, norm, number)
  ops.call("adamw_", p.tensor, p.state.m, p.state.v, p.tensor.grad, norm,
    {master = p.state.master, lr = self.rate, step = number, beta1 = self.beta1,
     beta2 = self.beta2, eps = self.eps, weight_decay = p.state.decay, clip = self.clip,
     skip_nonfinite = self.skip_nonfinite, stochastic = p.state.stochastic})
end

local SGD = class {type_name = "SGD", state_names = {"velocity"}, default_lr = 0.01}

--- nn.SGD(model, {lr=0.01, momentum=0, nesterov=false, weight_decay=0, clip=0,
--- skip_nonfinite=false, decay_filter}): stochastic gradient descent; see nn.AdamW for the common
--- options.
---     nn.SGD(nn.Linear(3, 1), {lr = 0.1, momentum = 0.9}).momentum  --> 0.9
function M.SGD(model, options)
  options = arguments.options("SGD", options, sgd_options)
  local self = new(SGD, "SGD", model, options)
  self.settings.momentum = number_option("SGD", options, "momentum", 0, 0, 1)
  self.settings.nesterov = options.nesterov or false
  return self
end

function SGD:update(p, norm)
  local velocity = self.momentum > 0 and p.state.velocity or nil
  ops.call("sgd_", p.tensor, p.tensor.grad,
    {velocity = velocity, norm = norm, lr = self.rate, momentum = self.momentum,
     nesterov = self.nesterov, weight_decay = p.state.decay, clip = self.clip,
     skip_nonfinite = self.skip_nonfinite})
end

return M
