-- Learning-rate schedulers with PyTorch's names and values, for scripts that call scheduler:step().
-- The rate of a group is a function of the number of steps and of its rate at the start; recipes
-- use nn.schedule (schedule.lua).
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local number, names = arguments.number, arguments.names

local M = {}

local Scheduler = {}              -- methods of all classes
Scheduler.__index = Scheduler
local initial = setmetatable({}, {__mode = "k"})    -- {[group] = its rate before any scheduler}
local in_charge = setmetatable({}, {__mode = "kv"}) -- {[optimizer] = the scheduler that steps it}

local function apply(self)
  for i, group in ipairs(self.optim.groups) do
    group.lr = self.rate_at(self.last_epoch, self.base[i], i)
  end
end

-- A scheduler of an optimizer. rate_at(epoch, base, i) -> the rate of group i after that many
-- steps; base: its rate before any scheduler.
local function new(name, optim, rate_at)
  local self = setmetatable({optim = optim, base = {}, rate_at = rate_at, last_epoch = 0}, {
    __index = Scheduler, type_name = name,
    __tostring = function(s) return ("%s after %d steps"):format(name, s.last_epoch) end,
  })
  for i, group in ipairs(optim.groups) do
    initial[group] = initial[group] or group.lr
    self.base[i] = initial[group]
  end
  apply(self)
  return self
end

local function take_charge(self)
  local other = in_charge[self.optim]
  if other and other ~= self then
    lib.misuse("%s: a %s already sets the rates of this optimizer; combine schedulers with "
               .. "nn.SequentialLR", getmetatable(self).type_name, getmetatable(other).type_name)
  end
  in_charge[self.optim] = self
end

--- scheduler:step() sets the rates of the optimizer's groups for the next step; call it after
--- optim:step(). Compiled steps follow. Errors: another scheduler sets the rates of this optimizer
--- (combine them with nn.SequentialLR).
---     local optim = nn.SGD(model, {lr = 0.1})
---     local scheduler = nn.ExponentialLR(optim, {gamma = 0.5})
---     scheduler:step()
---     optim.lr  --> 0.05
function Scheduler:step()
  take_charge(self)
  self.last_epoch = self.last_epoch + 1
  apply(self)
end

--- scheduler:get_last_lr() -> the rates of the groups, a list.
---     nn.StepLR(nn.SGD(model, {lr = 0.1}), {step_size = 30}):get_last_lr()  --> {0.1}
function Scheduler:get_last_lr()
  local out = {}
  for i, group in ipairs(self.optim.groups) do out[i] = group.lr end
  return out
end

local saved = names "last_epoch base best bad_epochs cooldown_left"

--- scheduler:state() -> its numbers, a table for scheduler:load() and for `config` of
--- nn.save_checkpoint: the number of steps, and the rates before any scheduler.
---     nn.StepLR(optim, {step_size = 30}):state().last_epoch  --> 0
function Scheduler:state()
  local out = {}
  for name in pairs(saved) do out[name] = self[name] end
  return out
end

--- scheduler:load(state) continues from the state of a scheduler with the same options.
---     local scheduler = nn.StepLR(optim, {step_size = 10})
---     scheduler:load {last_epoch = 10}
---     optim.lr  --> 1e-4
function Scheduler:load(state)
  state = arguments.options("load", state, saved)
  self.last_epoch = arguments.whole("load", "last_epoch", state.last_epoch, 0)
  if state.base then
    local count = arguments.list("load", "base", state.base)
    arguments.need(count == #self.base, "load", "the number of rates in base", count,
                   #self.base .. " are needed, one per group")
    self.base = {}
    for i = 1, count do self.base[i] = number("load", state.base, i, nil, 0) end
  end
  apply(self)
end

-- The options of a scheduler, of which `known` are the names. Checks the optimizer too.
local function options_of(name, optim, given, known)
  local class = type(optim) == "table" and getmetatable(optim)
  arguments.need(class and class.default_lr, name, "the optimizer", optim,
                 "one such as nn.AdamW is needed")
  return arguments.options(name, given, names(known))
end

local function whole(name, options, key, default)
  local value = options[key]
  if value == nil then value = default end
  return arguments.whole(name, key, value)
end

--- nn.StepLR(optim, {step_size=, gamma=0.1}): multiplies the rates by gamma every step_size steps.
--- The schedulers have the names, options and values of torch.optim.lr_scheduler; see
--- scheduler:step(). Errors: options out of range.
---     local optim = nn.SGD(model, {lr = 1})
---     local scheduler = nn.StepLR(optim, {step_size = 2})
---     scheduler:step()
---     scheduler:step()
---     optim.lr  --> 0.1
function M.StepLR(optim, options)
  options = options_of("StepLR", optim, options, "step_size gamma")
  local every, gamma = whole("StepLR", options, "step_size"),
    number("StepLR", options, "gamma", 0.1, 0)
  return new("StepLR", optim, function(epoch, base)
    return base * gamma ^ math.floor(epoch / every)
  end)
end

-- A list of whole numbers in ascending order.
local function milestones_of(name, list, count)
  local n = arguments.list(name, "milestones", list)
  if count and n ~= count then
    lib.misuse("%s: there are %d milestones; %d are needed, one less than schedulers", name, n,
               count)
  end
  for i = 1, n do arguments.whole(name, "a milestone", list[i], i > 1 and list[i - 1] or 0) end
  return list
end

-- The number of milestones up to an epoch, and the last of them (0 if none).
local function passed(milestones, epoch)
  local n = 0
  while n < #milestones and milestones[n + 1] <= epoch do n = n + 1 end
  return n, milestones[n] or 0
end

--- nn.MultiStepLR(optim, {milestones=, gamma=0.1}): multiplies the rates by gamma at each
--- milestone, a number of steps.
---     nn.MultiStepLR(optim, {milestones = {30, 80}}):get_last_lr()  --> {1e-3}
function M.MultiStepLR(optim, options)
  options = options_of("MultiStepLR", optim, options, "milestones gamma")
  local milestones = milestones_of("MultiStepLR", options.milestones)
  local gamma = number("MultiStepLR", options, "gamma", 0.1, 0)
  return new("MultiStepLR", optim, function(epoch, base)
    return base * gamma ^ passed(milestones, epoch)
  end)
end

--- nn.ConstantLR(optim, {factor=1/3, total_iters=5}): multiplies the rates by factor in the first
--- total_iters steps.
---     nn.ConstantLR(nn.SGD(model, {lr = 1}), {factor = 0.5}):get_last_lr()  --> {0.5}
function M.ConstantLR(optim, options)
  options = options_of("ConstantLR", optim, options, "factor total_iters")
  local factor = number("ConstantLR", options, "factor", 1 / 3, 0, 1)
  local total = whole("ConstantLR", options, "total_iters", 5)
  return new("ConstantLR", optim, function(epoch, base)
    return epoch < total and base * factor or base
  end)
end

--- nn.LinearLR(optim, {start_factor=1/3, end_factor=1, total_iters=5}): multiplies the rates by a
--- factor that changes linearly in the first total_iters steps: a warm-up.
---     nn.LinearLR(nn.SGD(model, {lr = 1}), {start_factor = 0.1}):get_last_lr()  --> {0.1}
function M.LinearLR(optim, options)
  options = options_of("LinearLR", optim, options, "start_factor end_factor total_iters")
  local first = number("LinearLR", options, "start_factor", 1 / 3, 0, 1)
  local last = number("LinearLR", options, "end_factor", 1, 0, 1)
  local total = whole("LinearLR", options, "total_iters", 5)
  return new("LinearLR", optim, function(epoch, base)
    return base * (first + (last - first) * math.min(total, epoch) / total)
  end)
end

--- nn.ExponentialLR(optim, {gamma=}): multiplies the rates by gamma after every step.
---     nn.ExponentialLR(optim, {gamma = 0.99}):get_last_lr()  --> {1e-3}
function M.ExponentialLR(optim, options)
  options = options_of("ExponentialLR", optim, options, "gamma")
  local gamma = number("ExponentialLR", options, "gamma", nil, 0)
  return new("ExponentialLR", optim, function(epoch, base) return base * gamma ^ epoch end)
end

--- nn.PolynomialLR(optim, {total_iters=5, power=1}): the rates fall to 0 in total_iters steps.
---     nn.PolynomialLR(optim, {total_iters = 100, power = 2}):get_last_lr()  --> {1e-3}
function M.PolynomialLR(optim, options)
  options = options_of("PolynomialLR", optim, options, "total_iters power")
  local total = whole("PolynomialLR", options, "total_iters", 5)
  local power = number("PolynomialLR", options, "power", 1, 0)
  return new("PolynomialLR", optim, function(epoch, base)
    return base * (1 - math.min(total, epoch) / total) ^ power
  end)
end

local function linear(from, to, progress) return from + (to - from) * progress end

local function cosine(from, to, progress)
  return to + (from - to) * (1 + math.cos(math.pi * progress)) / 2
end

--- nn.CosineAnnealingLR(optim, {T_max=, eta_min=0}): the rates fall to eta_min in T_max steps,
--- along a half cosine; then they rise again.
---     nn.CosineAnnealingLR(optim, {T_max = 100}):get_last_lr()  --> {1e-3}
function M.CosineAnnealingLR(optim, options)
  options = options_of("CosineAnnealingLR", optim, options, "T_max eta_min")
  local steps = whole("CosineAnnealingLR", options, "T_max")
  local least = number("CosineAnnealingLR", options, "eta_min", 0, 0)
  return new("CosineAnnealingLR", optim, function(epoch, base)
    return cosine(base, least, epoch / steps)
  end)
end

--- nn.CosineAnnealingWarmRestarts(optim, {T_0=, T_mult=1, eta_min=0}): the rates fall to eta_min in
--- T_0 steps along a half cosine and start again; each fall takes T_mult times as many steps.
---     nn.CosineAnnealingWarmRestarts(optim, {T_0 = 10}):get_last_lr()  --> {1e-3}
function M.CosineAnnealingWarmRestarts(optim, options)
  local name = "CosineAnnealingWarmRestarts"
  options = options_of(name, optim, options, "T_0 T_mult eta_min")
  local first, mult = whole(name, options, "T_0"), whole(name, options, "T_mult", 1)
  local least = number(name, options, "eta_min", 0, 0)
  return new(name, optim, function(epoch, base)
    local steps = first
    while epoch >= steps do epoch, steps = epoch - steps, steps * mult end
    return cosine(base, least, epoch / steps)
  end)
end

-- The factor of max_lr of OneCycleLR after `epoch` of `total` steps. between(from, to, progress).
local function one_cycle_factor(epoch, total, o, between)
  local peak, low = o.pct_start * total - 1, 1 / o.div_factor
  local phases = {{peak, 1}, {total - 1, low / o.final_div_factor}}   -- {last step, factor there}
  if o.three_phase then table.insert(phases, 2, {2 * peak, low}) end
  local first, from = 0, low
  for k, phase in ipairs(phases) do
    local last, to = unpack(phase)
    if epoch <= last or k == #phases then
      return between(from, to, (epoch - first) / (last - first))
    end
    first, from = last, to
  end
end

local one_cycle_options = "max_lr total_steps epochs steps_per_epoch pct_start anneal_strategy "
  .. "cycle_momentum div_factor final_div_factor three_phase"

--- nn.OneCycleLR(optim, {max_lr=, total_steps=, epochs=, steps_per_epoch=, pct_start=0.3,
--- anneal_strategy="cos", div_factor=25, final_div_factor=1e4, three_phase=false,
--- cycle_momentum=false}): the rates rise from max_lr / div_factor to max_lr in the first pct_start
--- of total_steps (or epochs x steps_per_epoch), and fall to 1 / final_div_factor of the first.
--- max_lr: a number, or a list with one per group. cycle_momentum must be false, which is not
--- PyTorch's default: the momentum does not change. Errors: more steps than total_steps.
---     nn.OneCycleLR(optim, {max_lr = 0.5, total_steps = 100,
---                           cycle_momentum = false}):get_last_lr()  --> {0.02}
function M.OneCycleLR(optim, options)
  local name = "OneCycleLR"
  options = options_of(name, optim, options, one_cycle_options)
  if options.cycle_momentum ~= false then
    lib.misuse("%s: PyTorch changes the momentum too, nnlua does not; pass cycle_momentum = false",
               name)
  end
  arguments.need(options.total_steps or options.epochs, name, "total_steps", options.total_steps,
                 "give it, or epochs and steps_per_epoch")
  local total = options.total_steps and whole(name, options, "total_steps")
    or whole(name, options, "epochs") * whole(name, options, "steps_per_epoch")
  local strategy = options.anneal_strategy or "cos"
  arguments.need(strategy == "cos" or strategy == "linear", name, "anneal_strategy", strategy,
                 '"cos" or "linear" is needed')
  local shape = {
    div_factor = number(name, options, "div_factor", 25, 1),
    final_div_factor = number(name, options, "final_div_factor", 1e4, 1),
    pct_start = number(name, options, "pct_start", 0.3, 0, 1), three_phase = options.three_phase,
  }
  local peaks, given = {}, options.max_lr
  for i = 1, #optim.groups do
    peaks[i] = number(name, {max_lr = type(given) == "table" and given[i] or given}, "max_lr", nil,
                      0)
  end
  return new(name, optim, function(epoch, _, i)
    if epoch > total then
      lib.misuse("%s: this is step %d; total_steps is %d", name, epoch, total)
    end
    return peaks[i] * one_cycle_factor(epoch, total, shape, strategy == "cos" and cosine or linear)
  end)
end

--- nn.LambdaLR(optim, {lr_lambda=}): multiplies the rates by lr_lambda(number of steps so far).
--- lr_lambda: a function, or a list with one per group.
---     local function inverse(epoch) return 1 / (epoch + 2) end
---     nn.LambdaLR(optim, {lr_lambda = inverse}):get_last_lr()  --> {5e-4}
function M.LambdaLR(optim, options)
  local f = options_of("LambdaLR", optim, options, "lr_lambda").lr_lambda
  local list = type(f) == "table" and not getmetatable(f) and f or {}
  for i = 1, #optim.groups do
    list[i] = arguments.callable("LambdaLR", list == f and f[i] or f)
  end
  return new("LambdaLR", optim, function(epoch, base, i) return base * list[i](epoch) end)
end

--- nn.SequentialLR(optim, {schedulers=, milestones=}): the first scheduler until the first
--- milestone, a number of steps, then the second from its start, and so on.
---     local warmup = nn.LinearLR(optim, {start_factor = 0.1, total_iters = 10})
---     local decay = nn.CosineAnnealingLR(optim, {T_max = 90})
---     local scheduler = nn.SequentialLR(optim, {schedulers = {warmup, decay}, milestones = {10}})
---     scheduler:get_last_lr()  --> {1e-4}
function M.SequentialLR(optim, options)
  local name = "SequentialLR"
  options = options_of(name, optim, options, "schedulers milestones")
  local list = options.schedulers
  for i = 1, arguments.list(name, "schedulers", list) do
    local one = list[i]
    arguments.need(type(one) == "table" and one.rate_at and one.optim == optim, name,
                   "scheduler " .. i, one, "a scheduler of this optimizer, but not "
                   .. "nn.ReduceLROnPlateau, is needed")
  end
  local milestones = milestones_of(name, options.milestones, #list - 1)
  return new(name, optim, function(epoch, base, i)
    local n, start = passed(milestones, epoch)
    return list[n + 1].rate_at(epoch - start, base, i)
  end)
end

local Plateau = {type_name = "ReduceLROnPlateau"}
Plateau.__index = function(_, key) return Plateau[key] or Scheduler[key] end
Plateau.__tostring = function(s)
  return ("%s after %d steps"):format(s.type_name, s.last_epoch)
end

-- Whether a value improves on the best one by more than the threshold.
local function improves(o, value, best)
  if not best then return true end
  local sign = o.mode == "min" and -1 or 1
  local margin = o.threshold_mode == "rel" and math.abs(best) * o.threshold or o.threshold
  return sign * (value - best) > margin
end

-- scheduler:step(value): after `patience` steps without a better value, reduces the rates.
function Plateau:step(value)
  arguments.need(type(value) == "number", self.type_name, "the value", value,
                 "a number, such as the validation loss, is needed: scheduler:step(loss:item())")
  local o = self.options
  take_charge(self)
  self.last_epoch = self.last_epoch + 1
  if improves(o, value, self.best) then
    self.best, self.bad_epochs = value, 0
  else
    self.bad_epochs = self.bad_epochs + 1
  end
  if self.cooldown_left > 0 then
    self.cooldown_left, self.bad_epochs = self.cooldown_left - 1, 0
  end
  if self.bad_epochs <= o.patience then return end
  for _, group in ipairs(self.optim.groups) do
    local lower = math.max(group.lr * o.factor, o.min_lr)
    if group.lr - lower > o.eps then group.lr = lower end
  end
  self.cooldown_left, self.bad_epochs = o.cooldown, 0
end

-- The rates are the optimizer's, which its checkpoint stores.
function Plateau:load(state)
  state = arguments.options("load", state, saved)
  for _, name in ipairs {"last_epoch", "bad_epochs", "cooldown_left"} do
    self[name] = arguments.whole("load", name, state[name], 0)
  end
  self.best = state.best
end

local plateau_options = "mode factor patience threshold threshold_mode cooldown min_lr eps"

--- nn.ReduceLROnPlateau(optim, {mode="min", factor=0.1, patience=10, threshold=1e-4,
--- threshold_mode="rel", cooldown=0, min_lr=0, eps=1e-8}): scheduler:step(value) multiplies the
--- rates by factor if more than `patience` steps in a row did not improve on the best value.
---     local optim = nn.SGD(model, {lr = 1})
---     local scheduler = nn.ReduceLROnPlateau(optim, {patience = 1})
---     for _, loss in ipairs {3, 2.5, 2.6, 2.5} do scheduler:step(loss) end
---     optim.lr  --> 0.1
function M.ReduceLROnPlateau(optim, options)
  local name = "ReduceLROnPlateau"
  options = options_of(name, optim, options, plateau_options)
  local mode, kind = options.mode or "min", options.threshold_mode or "rel"
  arguments.need(mode == "min" or mode == "max", name, "mode", mode, '"min" or "max" is needed')
  arguments.need(kind == "rel" or kind == "abs", name, "threshold_mode", kind,
                 '"rel" or "abs" is needed')
  return setmetatable({
    optim = optim, last_epoch = 0, bad_epochs = 0, cooldown_left = 0,
    options = {
      mode = mode, threshold_mode = kind, factor = number(name, options, "factor", 0.1, 0, 1),
      patience = number(name, options, "patience", 10, 0),
      threshold = number(name, options, "threshold", 1e-4, 0),
      cooldown = number(name, options, "cooldown", 0, 0),
      min_lr = number(name, options, "min_lr", 0, 0), eps = number(name, options, "eps", 1e-8, 0),
    },
  }, Plateau)
end

return M
