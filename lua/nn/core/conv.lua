-- Convolutions and pooling over images (images, channels, height, width) and sequences (sequences,
-- channels, length), and the small modules that stand between layers.

local arguments = require "nn.base.arguments"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor

local M = {}

-- A number, or a list of two, as a list for rows and columns.
local function pair(who, what, value)
  if type(value) == "number" then value = {value, value} end
  arguments.need(type(value) == "table" and arguments.list_length(value) == 2, who, what, value,
                 "a number or {rows, columns} is needed")
  for i = 1, 2 do arguments.whole(who, what, value[i], 0) end
  return value
end

-- A number along a sequence as a list for the one row that holds it, and for its columns.
local function along(who, what, value, row)
  return {row, arguments.whole(who, what, value, 0)}
end

-- The tensor (..., channels, length) with an axis for the one row.
local function with_row(who, what, x, axes)
  if not is_tensor(x) or #x.shape ~= axes then
    lib.misuse("%s: %s is %s; a tensor of %d axes is needed", who, what,
               is_tensor(x) and tensor.shape_text(x.shape) or arguments.describe(x), axes)
  end
  return x:unsqueeze(-2)
end
local function without_row(y) return y:squeeze(-2) end

local conv_names = "stride padding dilation groups"
local conv_options = arguments.names(conv_names)

--- nn.conv1d(x, weight, bias, {stride=1, padding=0, dilation=1, groups=1}) -> y: nn.conv2d over
--- sequences, for x (sequences, channels, length), weight (outputs, channels / groups, taps) and
--- bias (outputs) or nil. padding may be "same": y has the length of x.
---     nn.conv1d(nn.ones(1, 1, 4), nn.ones(1, 1, 2))  --> {{{2, 2, 2}}}
function M.conv1d(x, weight, bias, options)
  options = arguments.options("conv1d", options, conv_options)
  local same, rows = options.padding == "same", with_row("conv1d", "x", x, 3)
  local taps, groups = with_row("conv1d", "weight", weight, 3), options.groups or 1
  if x:dim(2) ~= weight:dim(2) * groups then
    lib.misuse("conv1d: x is %s, weight is %s; with groups = %d weight must be (outputs, %g, taps)",
               tensor.shape_text(x.shape), tensor.shape_text(weight.shape), groups,
               x:dim(2) / groups)
  end
  return without_row(ops.call("conv2d", rows, taps, bias, {
    stride = along("conv1d", "stride", options.stride or 1, 1), same = same,
    padding = along("conv1d", "padding", not same and options.padding or 0, 0),
    dilation = along("conv1d", "dilation", options.dilation or 1, 1), groups = groups,
  }))
end

local pool_options = arguments.names "stride padding"
local mean_options = arguments.names "stride padding count_include_pad"

local function pool2d(who, x, size, kind, options)
  return ops.call("pool2d", x, {
    size = pair(who, "the size", size), kind = kind,
    stride = options.stride and pair(who, "stride", options.stride),
    padding = pair(who, "padding", options.padding or 0),
  })
end

local function pool1d(who, x, size, kind, options)
  arguments.need(is_tensor(x) and #x.shape >= 2, who, "x", x,
                 "a tensor (..., channels, length) is needed")
  return without_row(ops.call("pool2d", x:unsqueeze(-2), {
    size = along(who, "the size", size, 1), kind = kind,
    stride = options.stride and along(who, "stride", options.stride, 1),
    padding = along(who, "padding", options.padding or 0, 0),
  }))
end

local function mean_kind(options)
  return options.count_include_pad == false and "mean_inside" or "mean"
end

--- nn.max_pool2d(x, size, {stride=size, padding=0}) -> the largest element of each window of
--- x (..., height, width). Sizes are numbers or {rows, columns}; padding is never the largest.
---     nn.max_pool2d(x:reshape(1, 2, 3), {2, 3})  --> {{{6}}}
function M.max_pool2d(x, size, options)
  options = arguments.options("max_pool2d", options, pool_options)
  return pool2d("max_pool2d", x, size, "max", options)
end

--- nn.avg_pool2d(x, size, {stride=size, padding=0, count_include_pad=true}) -> the mean of each
--- window of x (..., height, width). With count_include_pad = false, zeros around x do not count.
---     nn.avg_pool2d(x:reshape(1, 2, 3), {2, 3})  --> {{{3.5}}}
function M.avg_pool2d(x, size, options)
  options = arguments.options("avg_pool2d", options, mean_options)
  return pool2d("avg_pool2d", x, size, mean_kind(options), options)
end

--- nn.max_pool1d(x, size, {stride=size, padding=0}) -> the largest element of each window of
--- x (..., length).
---     nn.max_pool1d(x, 2, {stride = 1})  --> {{2, 3}, {5, 6}}
function M.max_pool1d(x, size, options)
  options = arguments.options("max_pool1d", options, pool_options)
  return pool1d("max_pool1d", x, size, "max", options)
end

--- nn.avg_pool1d(x, size, {stride=size, padding=0, count_include_pad=true}) -> the mean of each
--- window of x (..., length).
---     nn.avg_pool1d(x, 3)  --> {{2}, {5}}
function M.avg_pool1d(x, size, options)
  options = arguments.options("avg_pool1d", options, mean_options)
  return pool1d("avg_pool1d", x, size, mean_kind(options), options)
end

--- nn.adaptive_avg_pool2d(x, size) -> y (..., rows, columns): means of equal parts of
--- x (..., height, width). size: a number or {rows, columns}. Errors: a size that does not divide
--- that of x.
---     nn.adaptive_avg_pool2d(x:reshape(1, 2, 3), 1)  --> {{{3.5}}}
function M.adaptive_avg_pool2d(x, size)
  size = pair("adaptive_avg_pool2d", "the size", size)
  arguments.need(is_tensor(x) and #x.shape >= 2, "adaptive_avg_pool2d", "x", x,
                 "a tensor (..., height, width) is needed")
  local window = {}
  for i = 1, 2 do
    local whole = x:dim(i - 3)
    if size[i] == 0 or whole % size[i] ~= 0 then
      lib.misuse("adaptive_avg_pool2d: %d parts of %d elements would differ in size, which is not "
                 .. "supported; choose a divisor, or use avg_pool2d", size[i], whole)
    end
    window[i] = whole / size[i]
  end
  return pool2d("adaptive_avg_pool2d", x, window, "mean", {})
end

-- Checks a size along the axes: a number, or of several axes a list of `axes` or `more` numbers.
local function check_sizes(who, what, value, low, axes, more)
  if type(value) == "number" or axes == 1 then return arguments.whole(who, what, value, low) end
  local n = type(value) == "table" and arguments.list_length(value)
  arguments.need(n == axes or more and n == more, who, what, value,
                 "a number or {rows, columns} is needed")
  for i = 1, n do arguments.whole(who, what, value[i], low) end
end

local function check_options(who, self, axes)
  check_sizes(who, "stride", self.stride, 1, axes)
  check_sizes(who, "dilation", self.dilation, 1, axes)
  if self.padding ~= "same" then return check_sizes(who, "padding", self.padding, 0, axes, 4) end
  local steps = type(self.stride) == "table" and self.stride or {self.stride}
  for _, step in ipairs(steps) do
    if step ~= 1 then lib.misuse("%s: same padding needs a stride of 1, not %d", who, step) end
  end
end

local layer_options = arguments.names(conv_names .. " bias dtype")

-- Sets the fields of a convolution whose weight has these sizes after its channels. Weights start
-- normal with the variance of PyTorch's, 1 / (3 inputs of an output).
local function set_conv(self, who, channels, outputs, sizes, options)
  self.channels = arguments.whole(who, "the number of channels", channels)
  self.outputs = arguments.whole(who, "the number of outputs", outputs)
  local groups = arguments.whole(who, "groups", options.groups or 1)
  if channels % groups ~= 0 or outputs % groups ~= 0 then
    lib.misuse("%s: groups = %d does not divide %d channels and %d outputs", who, groups, channels,
               outputs)
  end
  local inputs = channels / groups
  for _, size in ipairs(sizes) do inputs = inputs * arguments.whole(who, "the size", size) end
  local std, dtype = (3 * inputs) ^ -0.5, options.dtype
  self.groups, self.stride, self.dilation = groups, options.stride or 1, options.dilation or 1
  self.padding = options.padding ~= "valid" and options.padding or 0
  check_options(who, self, #sizes)
  self.weight = module.parameter({outputs, channels / groups, unpack(sizes)},
                                 {std = std, dtype = dtype})
  if arguments.flag(who, options, "bias", true) then
    self.bias = module.parameter({outputs}, {std = std, dtype = dtype})
  end
end

local Conv1d = module.module "Conv1d"
M.Conv1d = Conv1d
--- nn.Conv1d(channels, outputs, size, {stride=1, padding=0, dilation=1, groups=1, bias=true}):
--- nn.conv1d with a weight (outputs, channels / groups, size) and a bias (outputs). padding is a
--- number, "same" or "valid" (0). Weights start normal, their variance 1 / (3 size channels /
--- groups).
---     nn.Conv1d(2, 4, 3, {padding = "same"})(x:reshape(1, 2, 3)):dims()  --> 1, 4, 3
function Conv1d:init(channels, outputs, size, options)
  options = arguments.options("Conv1d", options, layer_options)
  size = arguments.whole("Conv1d", "the size", size)
  set_conv(self, "Conv1d", channels, outputs, {size}, options)
end
function Conv1d:forward(x)
  layers.need_channels(self, x, 3, 3)
  return M.conv1d(x, self.weight, self.bias, {
    stride = self.stride, padding = self.padding, dilation = self.dilation, groups = self.groups,
  })
end

local Conv2d = module.module "Conv2d"
M.Conv2d = Conv2d
--- nn.Conv2d(channels, outputs, size, {stride=1, padding=0, dilation=1, groups=1, bias=true}):
--- nn.conv2d over images (images, channels, height, width), with a weight (outputs,
--- channels / groups, rows, columns) and a bias (outputs). Sizes are numbers or {rows, columns};
--- padding may also be {top, bottom, left, right}, "same" or "valid" (0). Weights start normal with
--- variance 1 / (3 rows columns channels / groups).
---     nn.Conv2d(3, 8, 3, {padding = 1, stride = 2})(nn.zeros(2, 3, 8, 8)):dims()  --> 2, 8, 4, 4
function Conv2d:init(channels, outputs, size, options)
  options = arguments.options("Conv2d", options, layer_options)
  set_conv(self, "Conv2d", channels, outputs, pair("Conv2d", "the size", size), options)
end
function Conv2d:forward(x)
  layers.need_channels(self, x, 4, 4)
  local same = self.padding == "same"
  return ops.call("conv2d", x, self.weight, self.bias, {
    stride = self.stride, padding = same and 0 or self.padding, same = same,
    dilation = self.dilation, groups = self.groups,
  })
end

-- A class of a pooling function with its size and options, which have these names.
local function pool_class(name, f, known)
  local class, axes = module.module(name), name:find "1d" and 1 or 2
  M[name] = class
  function class:init(size, options)
    self.size, self.options = size, arguments.options(name, options, known)
    check_sizes(name, "the size", size, 1, axes)
    check_sizes(name, "stride", self.options.stride or 1, 1, axes)
    local padding = self.options.padding or 0
    check_sizes(name, "padding", padding, 0, axes)
    for axis = 1, axes do
      local of = {type(size) == "table" and size[axis] or size,
                  type(padding) == "table" and padding[axis] or padding}
      arguments.need(2 * of[2] <= of[1], name, "padding", of[2],
                     "it may be at most half of the size")
    end
    arguments.flag(name, self.options, "count_include_pad", true)
  end
  function class:forward(x) return f(x, self.size, self.options) end
end

--- nn.MaxPool1d(size, options): nn.max_pool1d as a module.
---     nn.MaxPool1d(3)(x)  --> {{3}, {6}}
pool_class("MaxPool1d", M.max_pool1d, pool_options)
--- nn.MaxPool2d(size, options): nn.max_pool2d as a module.
---     nn.MaxPool2d(2)(nn.zeros(1, 3, 8, 8)):dims()  --> 1, 3, 4, 4
pool_class("MaxPool2d", M.max_pool2d, pool_options)
--- nn.AvgPool1d(size, options): nn.avg_pool1d as a module.
---     nn.AvgPool1d(3)(x)  --> {{2}, {5}}
pool_class("AvgPool1d", M.avg_pool1d, mean_options)
--- nn.AvgPool2d(size, options): nn.avg_pool2d as a module.
---     nn.AvgPool2d(2)(nn.zeros(1, 3, 8, 8)):dims()  --> 1, 3, 4, 4
pool_class("AvgPool2d", M.avg_pool2d, mean_options)
--- nn.AdaptiveAvgPool2d(size): nn.adaptive_avg_pool2d as a module.
---     nn.AdaptiveAvgPool2d(1)(nn.ones(2, 3, 8, 8)):dims()  --> 2, 3, 1, 1
pool_class("AdaptiveAvgPool2d", M.adaptive_avg_pool2d, {})

local Flatten = module.module "Flatten"
M.Flatten = Flatten
--- nn.Flatten(first=2, last=-1): joins the axes from `first` to `last` into one; by default all but
--- the first, which counts the examples.
---     nn.Flatten()(nn.zeros(2, 3, 4)):dims()  --> 2, 12
function Flatten:init(first, last)
  self.first, self.last = first or 2, last or -1
  for _, axis in ipairs {self.first, self.last} do
    arguments.whole("Flatten", "an axis", axis, -8, 8)
    arguments.need(axis ~= 0, "Flatten", "an axis", axis, "axes count from 1, or -1 from the end")
  end
end
function Flatten:forward(x)
  arguments.need(is_tensor(x), "Flatten", "x", x, "a tensor is needed")
  return x:flatten(self.first, self.last)
end

local Identity = module.module "Identity"
M.Identity = Identity
--- nn.Identity(): returns its arguments.
---     nn.Identity()(x):sum()  --> 21
function Identity:forward(...) return ... end

return M
