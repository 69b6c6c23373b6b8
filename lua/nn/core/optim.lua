-- The optimizers. Each declares its options and its states, and calls its op.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local optimizer = require "nn.core.optimizer"
local ops = require "nn.core.op"
local class, new, number = optimizer.class, optimizer.new, arguments.number

local M = {}

-- The options that every op has, of a parameter p; and more.
local function options_of(self, p, norm, more)
  more.norm, more.master, more.lr, more.weight_decay = norm, p.state.master, p.state.rate,
    p.state.decay
  more.clip, more.skip_nonfinite = self.clip, self.skip_nonfinite
  return more
end

-- A share that is kept of a mean, at least 0 and below 1.
local function decay(name, given, key, default)
  local value = number(name, given, key, default, 0, 1)
  arguments.need(value < 1, name, key, value, "a number below 1 is needed")
  return value
end

local AdamW = class {
  type_name = "AdamW", state_names = {"m", "v"}, masters = true, default_lr = 1e-3,
}

local function new_adam(adam, model, options)
  local name = adam.type_name
  return new(adam, model, options, "beta1 beta2 eps rounding", function(given)
    local rounding = given.rounding or "nearest"
    if rounding ~= "nearest" and rounding ~= "stochastic" then
      lib.misuse('%s: rounding is %s; "nearest" or "stochastic" is needed', name,
                 tostring(rounding))
    end
    return {rounding = rounding, beta1 = decay(name, given, "beta1", 0.9),
            beta2 = decay(name, given, "beta2", 0.999),
            eps = number(name, given, "eps", 1e-8, 0)}
  end)
end

--- nn.AdamW(model, {lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, clip=0,
--- skip_nonfinite=false, rounding="nearest", decay_filter}): AdamW. model: a module, a list such as
--- model:parameters(), a list of tensors, or a table of tensors by name; or a list of groups
--- {params = one of these, lr, weight_decay}, each with its own rate and decay. optim.groups[i].lr
--- and, if all groups have the same rate, optim.lr can be set at any time, also between calls of a
--- compiled step; the other options only here. weight_decay applies to parameters of two or more
--- axes, or to those for which decay_filter{path, tensor} is true; that of a group to all its
--- parameters. clip limits the global gradient norm (0: no limit). skip_nonfinite: a step with a
--- NaN or infinite gradient changes nothing. A bf16 parameter has a master weight in f32, which
--- steps update. With rounding="stochastic" it has none, which saves 4 bytes per parameter, and is
--- rounded stochastically; the random numbers depend on the seed and the number of random ops
--- before. Errors: options out of range; a parameter in two groups.
---     local layer, head = nn.Linear(3, 4), nn.Linear(4, 1)
---     local optim = nn.AdamW({{params = layer, lr = 1e-4}, {params = head, weight_decay = 0}},
---                            {lr = 0.01, weight_decay = 0.1, clip = 1})
---     optim.groups[1].lr, optim.groups[2].lr  --> 1e-4, 0.01
function M.AdamW(model, options) return new_adam(AdamW, model, options) end

function AdamW:update(p, norm, count)
  ops.call("adamw_", p.tensor, p.state.m, p.state.v, p.tensor.grad, options_of(self, p, norm, {
    step = count, beta1 = self.beta1, beta2 = self.beta2, eps = self.eps,
    stochastic = p.state.stochastic, coupled = self.coupled}))
end

local Adam = class {
  type_name = "Adam", state_names = {"m", "v"}, masters = true, default_lr = 1e-3, coupled = true,
  update = AdamW.update,
}

--- nn.Adam(model, {lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, clip=0,
--- skip_nonfinite=false, rounding="nearest", decay_filter}): Adam, whose weight decay is added to
--- the gradient, as in torch.optim.Adam. See nn.AdamW for the options and for groups.
---     nn.Adam(nn.Linear(3, 1), {lr = 0.1}).beta2  --> 0.999
function M.Adam(model, options) return new_adam(Adam, model, options) end

local SGD = class {type_name = "SGD", state_names = {"velocity"}, default_lr = 0.01}

--- nn.SGD(model, {lr=0.01, momentum=0, nesterov=false, weight_decay=0, clip=0,
--- skip_nonfinite=false, decay_filter}): stochastic gradient descent; see nn.AdamW for the common
--- options and for groups.
---     nn.SGD(nn.Linear(3, 1), {lr = 0.1, momentum = 0.9}).momentum  --> 0.9
function M.SGD(model, options)
  return new(SGD, model, options, "momentum nesterov", function(given)
    local momentum = number("SGD", given, "momentum", 0, 0, 1)
    local nesterov = arguments.flag("SGD", given, "nesterov", false)
    arguments.need(momentum > 0 or not nesterov, "SGD", "nesterov", nesterov,
                   "it needs a momentum above 0")
    return {momentum = momentum, nesterov = nesterov}
  end)
end

function SGD:update(p, norm)
  ops.call("sgd_", p.tensor, p.tensor.grad, options_of(self, p, norm, {
    velocity = self.momentum > 0 and p.state.velocity or nil, momentum = self.momentum,
    nesterov = self.nesterov}))
end

local RMSprop = class {type_name = "RMSprop", masters = true, default_lr = 0.01}

--- nn.RMSprop(model, {lr=0.01, alpha=0.99, eps=1e-8, momentum=0, centered=false, weight_decay=0,
--- clip=0, skip_nonfinite=false, decay_filter}): divides the gradient by the root of its mean
--- square (centered: of its variance), as torch.optim.RMSprop. See nn.AdamW for the common options
--- and for groups. weight_decay is added to the gradient.
---     nn.RMSprop(nn.Linear(3, 1), {centered = true}).alpha  --> 0.99
function M.RMSprop(model, options)
  return new(RMSprop, model, options, "alpha eps momentum centered", function(given)
    return {alpha = number("RMSprop", given, "alpha", 0.99, 0, 1),
            eps = number("RMSprop", given, "eps", 1e-8, 0),
            momentum = number("RMSprop", given, "momentum", 0, 0),
            centered = arguments.flag("RMSprop", given, "centered", false)}
  end, function(settings)
    local names = {"square"}
    if settings.centered then names[#names + 1] = "mean" end
    if settings.momentum > 0 then names[#names + 1] = "velocity" end
    return {state_names = names}
  end)
end

function RMSprop:update(p, norm)
  ops.call("rmsprop_", p.tensor, p.state.square, p.tensor.grad, options_of(self, p, norm, {
    mean = p.state.mean, velocity = p.state.velocity, alpha = self.alpha, eps = self.eps,
    momentum = self.momentum}))
end

local Adagrad = class {
  type_name = "Adagrad", state_names = {"sum"}, masters = true, default_lr = 0.01,
}

--- nn.Adagrad(model, {lr=0.01, lr_decay=0, eps=1e-10, initial_accumulator_value=0, weight_decay=0,
--- clip=0, skip_nonfinite=false, decay_filter}): divides the gradient by the root of the sum of its
--- squares, which starts at initial_accumulator_value, as torch.optim.Adagrad. See nn.AdamW for the
--- common options and for groups. weight_decay is added to the gradient.
---     nn.Adagrad(nn.Linear(3, 1)).eps  --> 1e-10
function M.Adagrad(model, options)
  local names = "lr_decay eps initial_accumulator_value"
  return new(Adagrad, model, options, names, function(given)
    return {lr_decay = number("Adagrad", given, "lr_decay", 0, 0),
            eps = number("Adagrad", given, "eps", 1e-10, 0),
            initial_accumulator_value = number("Adagrad", given, "initial_accumulator_value", 0, 0)}
  end, function(settings) return {start = settings.initial_accumulator_value} end)
end

function Adagrad:update(p, norm, count)
  ops.call("adagrad_", p.tensor, p.state.sum, p.tensor.grad, options_of(self, p, norm, {
    step = count, lr_decay = self.lr_decay, eps = self.eps}))
end

local Lion = class {type_name = "Lion", state_names = {"m"}, masters = true, default_lr = 1e-4}

--- nn.Lion(model, {lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0, clip=0, skip_nonfinite=false,
--- decay_filter}): Lion (Chen et al. 2023, arXiv 2302.06675), which moves every element by lr. It
--- needs a rate 3 to 10 times below that of AdamW, and a weight_decay as many times above. Keeps
--- one state per parameter, half of AdamW's. See nn.AdamW for the common options and for groups.
---     nn.Lion(nn.Linear(3, 1), {lr = 3e-5, weight_decay = 1}).beta2  --> 0.99
function M.Lion(model, options)
  return new(Lion, model, options, "beta1 beta2", function(given)
    return {beta1 = number("Lion", given, "beta1", 0.9, 0, 1),
            beta2 = number("Lion", given, "beta2", 0.99, 0, 1)}
  end)
end

function Lion:update(p, norm)
  ops.call("lion_", p.tensor, p.state.m, p.tensor.grad, options_of(self, p, norm, {
    beta1 = self.beta1, beta2 = self.beta2}))
end

return M
