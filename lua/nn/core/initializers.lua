-- Random values for weights, with the names and the distributions of torch.nn.init. They change a
-- tensor in place and may change one that requires a gradient.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"

local M = {}
local xavier_options = arguments.names "gain"
local kaiming_options = arguments.names "a mode nonlinearity"

-- The numbers of inputs and outputs of a weight (outputs, inputs, sizes of a kernel...).
local function fans(who, x)
  arguments.need(tensor.is_tensor(x), who, "the weight", x, "a tensor is needed")
  if #x.shape < 2 or not x.dtype:match "f" then
    lib.misuse("%s: the weight is %s %s; floats of at least two axes, (outputs, inputs, ...), are "
               .. "needed", who, x.dtype, tensor.shape_text(x.shape))
  end
  local kernel = x:count() / (x.shape[1] * x.shape[2])
  return x.shape[2] * kernel, x.shape[1] * kernel
end

-- Fills x with random values of a standard deviation.
local function fill(x, std, distribution)
  return tape.no_grad(function()
    if distribution == "normal" then return x:normal_ {std = std} end
    local bound = math.sqrt(3) * std
    module.copy(x, ops.call("uniform", x.shape, {low = -bound, high = bound, dtype = x.dtype}))
    return x
  end)
end

local function xavier(who, x, options, distribution)
  local inputs, outputs = fans(who, x)
  local gain = arguments.number(who, arguments.options(who, options, xavier_options), "gain", 1, 0)
  return fill(x, gain * math.sqrt(2 / (inputs + outputs)), distribution)
end

--- nn.xavier_uniform_(x, {gain=1}) -> x: uniform in [-a, a], a = gain sqrt(6 / (inputs + outputs))
--- (Glorot and Bengio 2010). x: a weight (outputs, inputs, sizes of a kernel...). Errors: fewer
--- than two axes.
---     local w = nn.xavier_uniform_(nn.zeros(400, 200))
---     w:abs():max():item() <= 0.1, w:square():mean():sqrt()  --> true, 0.058
function M.xavier_uniform_(x, options) return xavier("xavier_uniform_", x, options, "uniform") end

--- nn.xavier_normal_(x, {gain=1}) -> x: normal, with the standard deviation gain sqrt(2 / (inputs +
--- outputs)); see nn.xavier_uniform_.
---     nn.xavier_normal_(nn.zeros(400, 400)):square():mean():sqrt()  --> 0.05
function M.xavier_normal_(x, options) return xavier("xavier_normal_", x, options, "normal") end

-- Factors that keep the variance through an activation; a: the slope of leaky_relu below 0.
local gains = {
  linear = function() return 1 end, sigmoid = function() return 1 end,
  tanh = function() return 5 / 3 end, relu = function() return math.sqrt(2) end,
  leaky_relu = function(a) return math.sqrt(2 / (1 + a ^ 2)) end,
}

local function kaiming(who, x, options, distribution)
  options = arguments.options(who, options, kaiming_options)
  local inputs, outputs = fans(who, x)
  local mode, after = options.mode or "fan_in", options.nonlinearity or "leaky_relu"
  arguments.need(mode == "fan_in" or mode == "fan_out", who, "mode", mode,
                 '"fan_in" or "fan_out" is needed')
  arguments.need(gains[after], who, "nonlinearity", after,
                 "linear, sigmoid, tanh, relu or leaky_relu is needed")
  local gain = gains[after](arguments.number(who, options, "a", 0, -math.huge))
  return fill(x, gain / math.sqrt(mode == "fan_in" and inputs or outputs), distribution)
end

--- nn.kaiming_uniform_(x, {a=0, mode="fan_in", nonlinearity="leaky_relu"}) -> x: uniform in
--- [-b, b], b = gain sqrt(3 / inputs) (He et al. 2015); with mode="fan_out" of the outputs. gain is
--- sqrt(2 / (1 + a^2)) for leaky_relu with the slope a, sqrt(2) for relu, 5/3 for tanh, 1 for
--- sigmoid and linear. x: a weight (outputs, inputs, sizes of a kernel...). Errors: fewer than two
--- axes.
---     local w = nn.kaiming_uniform_(nn.zeros(100, 600), {nonlinearity = "relu"})
---     w:abs():max():item() <= 0.1, w:square():mean():sqrt()  --> true, 0.058
function M.kaiming_uniform_(x, options)
  return kaiming("kaiming_uniform_", x, options, "uniform")
end

--- nn.kaiming_normal_(x, {a=0, mode="fan_in", nonlinearity="leaky_relu"}) -> x: normal, with the
--- standard deviation gain / sqrt(inputs); see nn.kaiming_uniform_.
---     local w = nn.kaiming_normal_(nn.zeros(200, 800))
---     w:square():mean():sqrt()  --> 0.05
function M.kaiming_normal_(x, options)
  return kaiming("kaiming_normal_", x, options, "normal")
end

return M
