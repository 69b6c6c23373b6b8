-- Normalisation of the channels of images and sequences: BatchNorm, GroupNorm, InstanceNorm.
-- Statistics of bf16 are in f32.

local arguments = require "nn.base.arguments"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"

local M = {}
local need_channels, number = layers.need_channels, arguments.number

-- The mean and the variance of x over these axes, which stay with size 1, and x - mean.
local function moments(x, axes)
  local over = {axis = axes, keepdim = true}
  local mean = x:mean(over)
  local centered = x - mean
  return mean, centered:square():mean(over), centered
end

-- y times the weight of its channel, axis 2, plus the bias, if the layer has them.
local function scaled(self, y)
  if not self.weight then return y end
  local shape = {self.weight:dim(1)}
  for _ = 3, #y.shape do shape[#shape + 1] = 1 end
  return y * self.weight:to(y.dtype):reshape(shape) + self.bias:to(y.dtype):reshape(shape)
end

local function as_wide(x) return x.dtype == "bf16" and x:to "f32" or x end

local function set_affine(self, channels, options, default)
  if not arguments.flag(self.class_name, options, "affine", default) then return end
  self.weight = module.parameter({channels}, {value = 1, dtype = options.dtype})
  self.bias = module.parameter({channels}, {value = 0, dtype = options.dtype})
end

local batch_options = arguments.names "eps momentum affine track_running_stats dtype"

local function init_batch_norm(self, channels, options)
  local who = self.class_name
  options = arguments.options(who, options, batch_options)
  self.channels = arguments.whole(who, "the number of channels", channels)
  self.eps, self.momentum = number(who, options, "eps", 1e-5, 0),
    number(who, options, "momentum", 0.1, 0)
  set_affine(self, channels, options, true)
  self.tracks = arguments.flag(who, options, "track_running_stats", true)
  if self.tracks then
    local dtype = options.dtype ~= "bf16" and options.dtype or "f32"
    self.running_mean = module.buffer(ops.call("full", {channels}, 0, {dtype = dtype}))
    self.running_var = module.buffer(ops.call("full", {channels}, 1, {dtype = dtype}))
  end
end

-- running = (1 - momentum) running + momentum new, with the unbiased variance of n elements.
local function update(self, mean, variance, n)
  tape.no_grad(function()
    local new = {running_mean = mean, running_var = variance * (n / (n - 1))}
    for name, value in pairs(new) do
      local running = self[name]
      value = value:reshape(self.channels):to(running.dtype)
      running:copy_(running * (1 - self.momentum) + value * self.momentum)
    end
  end)
end

local function batch_norm(self, x)
  local wide, axes, shape = as_wide(x), {1}, {1, self.channels}
  for i = 3, #x.shape do axes[#axes + 1], shape[i] = i, 1 end
  local mean, variance, centered
  if layers.training() or not self.tracks then
    local n = x:count() / self.channels
    if n < 2 then
      lib.misuse("%s: x is %s; training needs more than one value for each channel",
                 self.class_name, tensor.shape_text(x.shape))
    end
    mean, variance, centered = moments(wide, axes)
    if self.tracks and layers.training() then update(self, mean, variance, n) end
  else
    mean = self.running_mean:to(wide.dtype):reshape(shape)
    variance = self.running_var:to(wide.dtype):reshape(shape)
    centered = wide - mean
  end
  return scaled(self, centered * (variance + self.eps):rsqrt()):to(x.dtype)
end

local BatchNorm1d = module.module "BatchNorm1d"
M.BatchNorm1d = BatchNorm1d
BatchNorm1d.init = init_batch_norm
--- nn.BatchNorm1d(channels, {eps=1e-5, momentum=0.1, affine=true, track_running_stats=true}): for x
--- (examples, channels) or (examples, channels, length), what nn.BatchNorm2d is for images.
---     nn.BatchNorm1d(3)(x):sum(1):abs():max():lt(1e-5)  --> true
function BatchNorm1d:forward(x)
  need_channels(self, x, 2, 3)
  return batch_norm(self, x)
end

local BatchNorm2d = module.module "BatchNorm2d"
M.BatchNorm2d = BatchNorm2d
BatchNorm2d.init = init_batch_norm
--- nn.BatchNorm2d(channels, {eps=1e-5, momentum=0.1, affine=true, track_running_stats=true}):
--- (x - mean) / sqrt(variance + eps), times a weight (initially 1), plus a bias (0), for each
--- channel of x (images, channels, height, width). In training, mean and variance are those of x,
--- and the buffers running_mean and running_var move towards them by `momentum` of the difference;
--- after nn.training(false) it uses the buffers. Errors: other channels; training with one value
--- for each channel.
---     local norm = nn.BatchNorm2d(2)
---     norm(nn.ones(1, 2, 3, 3)):sum()  --> 0
---     norm.running_mean  --> {0.1, 0.1}
function BatchNorm2d:forward(x)
  need_channels(self, x, 4, 4)
  return batch_norm(self, x)
end

-- x normalised over all elements of each of `groups` groups of channels.
local function grouped(self, x, groups)
  local wide = as_wide(x)
  local _, variance, centered = moments(wide:reshape(x:dim(1), groups, -1), {3})
  local y = (centered * (variance + self.eps):rsqrt()):reshape(x.shape)
  return scaled(self, y):to(x.dtype)
end

local group_options = arguments.names "eps affine dtype"

local GroupNorm = module.module "GroupNorm"
M.GroupNorm = GroupNorm
--- nn.GroupNorm(groups, channels, {eps=1e-5, affine=true}): normalises each group of neighbouring
--- channels of each example of x (examples, channels, ...), then multiplies each channel by a
--- weight (initially 1) and adds a bias (0). Errors: groups that do not divide the channels.
---     nn.GroupNorm(1, 3)(x):sum(2):abs():max():lt(1e-5)  --> true
function GroupNorm:init(groups, channels, options)
  options = arguments.options("GroupNorm", options, group_options)
  self.groups = arguments.whole("GroupNorm", "the number of groups", groups)
  self.channels = arguments.whole("GroupNorm", "the number of channels", channels)
  if channels % groups ~= 0 then
    lib.misuse("GroupNorm: %d groups do not divide %d channels", groups, channels)
  end
  self.eps = number("GroupNorm", options, "eps", 1e-5, 0)
  set_affine(self, channels, options, true)
end
function GroupNorm:forward(x)
  need_channels(self, x, 2, 8)
  return grouped(self, x, self.groups)
end

local InstanceNorm2d = module.module "InstanceNorm2d"
M.InstanceNorm2d = InstanceNorm2d
--- nn.InstanceNorm2d(channels, {eps=1e-5, affine=false}): normalises each channel of each image of
--- x (images, channels, height, width) by its own mean and variance.
---     nn.InstanceNorm2d(2)(nn.randn(1, 2, 3, 3)):sum{axis = {3, 4}}:abs():max():lt(1e-4)  --> true
function InstanceNorm2d:init(channels, options)
  options = arguments.options("InstanceNorm2d", options, group_options)
  self.channels = arguments.whole("InstanceNorm2d", "the number of channels", channels)
  self.eps = number("InstanceNorm2d", options, "eps", 1e-5, 0)
  set_affine(self, channels, options, false)
end
function InstanceNorm2d:forward(x)
  need_channels(self, x, 4, 4)
  return grouped(self, x, self.channels)
end

return M
