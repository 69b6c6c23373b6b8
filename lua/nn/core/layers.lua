-- The layers of language models.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"

local M = {}
local training = true

--- nn.training(on) switches dropout on or off, and BatchNorm between the statistics of the batch
--- and those that it tracked; nn.training() -> whether it is on. nn.evaluate and nn.generate switch
--- it off while they run.
---     nn.training()  --> true
---     nn.training(false)
function M.training(on)
  if on ~= nil then training = on end
  return training
end

--- need_channels(layer, x, least, most): raises an error unless x has layer.channels channels on
--- axis 2, and from `least` to `most` axes.
function M.need_channels(layer, x, least, most)
  local who, axes = layer.class_name, tensor.is_tensor(x) and #x.shape or 0
  if axes < least or axes > most then
    lib.misuse("%s: x is %s; a tensor of %s axes (examples, channels, ...) is needed", who,
               axes > 0 and tensor.shape_text(x.shape) or arguments.describe(x),
               least == most and least or least .. " to " .. most)
  end
  if x:dim(2) ~= layer.channels then
    lib.misuse("%s: x is %s; the layer has %d channels, on axis 2", who,
               tensor.shape_text(x.shape), layer.channels)
  end
end

local linear_options = arguments.names "bias gelu glu std dtype"
local norm_options = arguments.names "eps dtype"
local embedding_options = arguments.names "std axes dtype"

local glu_names = arguments.names "silu gelu gelu_exact"
local function check_activation(self)
  if self.glu == nil then return end
  arguments.need(glu_names[self.glu], "Linear", "glu", self.glu,
                 "'silu', 'gelu' or 'gelu_exact' is needed")
  arguments.need(not self.gelu, "Linear", "gelu", self.gelu, "with glu it cannot be applied too")
  arguments.need(self.outputs % 2 == 0, "Linear", "the number of outputs", self.outputs,
                 "glu needs an even one")
end

local Linear = module.module "Linear"
M.Linear = Linear
--- nn.Linear(inputs, outputs, {bias=true, gelu=false, glu=nil, std=0.02}): y = x weight^T + bias
--- over the last axis, weight (outputs, inputs). With gelu, y = GELU (tanh form) of that, in the
--- same kernel; with glu = "silu" (SwiGLU), "gelu" or "gelu_exact", y is nn.glu of that, with half
--- as many outputs. Weights start normal with standard deviation std, the bias 0. Errors: the last
--- axis of x is not `inputs`.
---     nn.Linear(3, 5)(x):dims()  --> 2, 5
function Linear:init(inputs, outputs, options)
  options = arguments.options("Linear", options, linear_options)
  self.inputs = arguments.whole("Linear", "the number of inputs", inputs)
  self.outputs = arguments.whole("Linear", "the number of outputs", outputs)
  self.gelu, self.glu = arguments.flag("Linear", options, "gelu", false), options.glu
  check_activation(self)
  local std, dtype = options.std or 0.02, options.dtype
  self.weight = module.parameter({outputs, inputs}, {std = std, dtype = dtype})
  if arguments.flag("Linear", options, "bias", true) then
    self.bias = module.parameter({outputs}, {value = 0, dtype = dtype})
  end
end
-- The kernel applies GELU together with a bias only.
function Linear:forward(x)
  local fused = self.gelu and self.bias ~= nil
  local y = ops.call("linear", x, self.weight, {bias = self.bias, gelu = fused, glu = self.glu})
  return self.gelu and not fused and ops.call("gelu", y) or y
end

local LayerNorm = module.module "LayerNorm"
M.LayerNorm = LayerNorm
--- nn.LayerNorm(size, {eps=1e-5}): norm(x) -> y. norm(x, delta) fuses the residual sum: it returns
--- x + delta and the norm of that sum. It has a weight (initially 1) and a bias (0) for the last
--- axis.
---     nn.LayerNorm(3)(x):mean(-1):abs():max():lt(1e-6)  --> true
function LayerNorm:init(size, options)
  options = arguments.options("LayerNorm", options, norm_options)
  self.size = arguments.whole("LayerNorm", "the size", size)
  self.eps = arguments.number("LayerNorm", options, "eps", 1e-5, 0)
  self.weight = module.parameter({size}, {value = 1, dtype = options.dtype})
  self.bias = module.parameter({size}, {value = 0, dtype = options.dtype})
end
function LayerNorm:forward(x, delta)
  local y, s = ops.call("layernorm", x, self.weight, self.bias, delta, {eps = self.eps})
  if delta then return s, y end
  return y
end

local RMSNorm = module.module "RMSNorm"
M.RMSNorm = RMSNorm
--- nn.RMSNorm(size, {eps=1e-6}): norm(x) -> y, x over the root of its mean square in the last axis,
--- times a weight (initially 1). norm(x, delta) fuses the residual sum, as LayerNorm does.
---     nn.RMSNorm(3)(x):square():mean(-1):sub(1):abs():max():lt(1e-4)  --> true
function RMSNorm:init(size, options)
  options = arguments.options("RMSNorm", options, norm_options)
  self.size = arguments.whole("RMSNorm", "the size", size)
  self.eps = arguments.number("RMSNorm", options, "eps", 1e-6, 0)
  self.weight = module.parameter({size}, {value = 1, dtype = options.dtype})
end
function RMSNorm:forward(x, delta)
  local y, s = ops.call("rmsnorm", x, self.weight, delta, {eps = self.eps})
  if delta then return s, y end
  return y
end

local Embedding = module.module "Embedding"
M.Embedding = Embedding
--- nn.Embedding(rows, size, {std=0.02, axes="vocab,embd"}): a table of vectors. embedding(ids)
--- looks up ids (..., time); embedding(ids, positions, start=0) also adds the rows of `positions`
--- (another Embedding) from row `start`, in the same kernel. Errors: an id of `rows` or more.
---     nn.Embedding(100, 8)(nn.tensor({{5, 99}}, {dtype = "i32"})):dims()  --> 1, 2, 8
function Embedding:init(rows, size, options)
  options = arguments.options("Embedding", options, embedding_options)
  self.rows = arguments.whole("Embedding", "the number of rows", rows)
  self.size = arguments.whole("Embedding", "the size", size)
  self.weight = module.parameter({rows, size}, {
    std = options.std or 0.02, axes = options.axes, dtype = options.dtype,
  })
end
function Embedding:forward(ids, positions, start)
  local position_weight = positions and positions.weight
  return ops.call("embedding", ids, self.weight, {positions = position_weight, start = start})
end

local Dropout = module.module "Dropout"
M.Dropout = Dropout
--- nn.Dropout(p): in training, zeroes elements with probability p and scales the others by 1/(1-p);
--- else returns x. Errors: p outside [0, 1).
---     nn.Dropout(0.5)(nn.ones(100)):max()  --> 2
function Dropout:init(p)
  if type(p) ~= "number" or not (p >= 0 and p < 1) then
    lib.misuse("Dropout: p is %s; it must be in [0, 1)", arguments.describe(p))
  end
  self.p = p
end
function Dropout:forward(x)
  if self.p == 0 or not training then return x end
  return (ops.call("dropout", x, self.p))
end

local Sequential = module.module "Sequential"
M.Sequential = Sequential
--- nn.Sequential{a, b, ...}: calls modules (or functions such as nn.gelu) one after the other.
---     nn.Sequential{nn.Linear(3, 8), nn.gelu, nn.Linear(8, 1)}(x):dims()  --> 2, 1
function Sequential:init(layers)
  if module.is_module(layers) or type(layers) == "function" then
    lib.misuse("Sequential: takes one list, nn.Sequential{a, b, ...}")
  end
  for i = 1, arguments.list("Sequential", "the argument", layers) do
    self[i] = arguments.callable("Sequential", layers[i])
  end
end
function Sequential:forward(x)
  for _, layer in ipairs(self) do x = layer(x) end
  return x
end

return M
