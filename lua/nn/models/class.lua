-- What the classes of models in models/ share: settings with defaults and checks, the shapes of
-- their parameters, and a lower bound of what training needs. decoder.lua, encoder.lua,
-- encoder_decoder.lua and models/mixer.lua build on it.
-- The blocks of a model are in its list `blocks`, of `layers` elements with the same shapes, or in
-- the lists of class.stacks.
local arguments = require "nn.base.arguments"
local budget = require "nn.base.budget"
local config = require "nn.io.config"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}

--- who(model or class) -> its name, for errors.
function M.who(self) return self.class_name:lower() end
local who = M.who

--- need_whole(name, key, value) raises an error unless the value is a whole number of at least 1.
function M.need_whole(name, key, value)
  if type(value) ~= "number" or value < 1 or value % 1 ~= 0 then
    lib.deny("%s: %s is %s; a whole number of at least 1 is needed", name, key, tostring(value))
  end
end
local need_whole = M.need_whole

--- need(model, x, axes, what, shape) raises an error unless x is a tensor of so many axes.
function M.need(self, x, axes, what, shape)
  if is_tensor(x) and #x.shape == axes then return end
  local given = is_tensor(x) and "(" .. table.concat(x.shape, ",") .. ")"
    or x == nil and "nil" or "a " .. type(x)
  lib.deny("%s: %s %s; a tensor %s of i32 is needed", who(self), what, given, shape)
end

--- need_context(model, time) raises an error if a sequence is longer than the model's context.
function M.need_context(self, time)
  local context = self.config.context
  if time > context then
    lib.deny("%s: %d tokens are more than the model's context of %d", who(self), time, context)
  end
end

--- need_tokens(self, time) raises an error if flops_per_token's number of tokens is no number.
function M.need_tokens(self, time)
  if type(time) ~= "number" then
    lib.deny("%s: flops_per_token: the number of tokens is %s; a number is needed", who(self),
             tostring(time))
  end
end

-- The value of a setting, checked.
local function setting(self, name, field, value)
  if value == nil and field.needed then
    lib.deny("%s: '%s' is missing; %s{%s = %s, ...}", who(self), name, self.class_name, name,
             tostring(field.default))
  end
  if value == nil then return field.default end
  if field.whole and field.min == 1 then need_whole(who(self), name, value) end
  local problem = config.problem(field, value)
  if problem then lib.deny("%s: '%s' %s", who(self), name, problem) end
  return value
end

--- checked(class, given) -> all settings, with the defaults of class.fields(). Errors: missing,
--- unknown or invalid settings.
function M.checked(class, given)
  local fields, out, names = class.fields(), {}, {}
  given = arguments.options(who(class), given, fields, lib.deny)
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names, function(a, b) return fields[a].order < fields[b].order end)
  for _, name in ipairs(names) do out[name] = setting(class, name, fields[name], given[name]) end
  return out
end

-- configure(model, given) -> config: the settings of a model, with the defaults of its class; 0 for
-- head_dim and kv_heads is replaced. Errors: those of checked(), and heads that do not divide.
local function configure(self, given)
  local c = M.checked(self, given)
  if (c.head_dim or 0) == 0 and c.embd % c.heads ~= 0 then
    lib.deny("%s: embd = %d is not a multiple of heads = %d; choose one, such as %d", who(self),
             c.embd, c.heads, math.ceil(c.embd / c.heads) * c.heads)
  end
  if c.head_dim == 0 then c.head_dim = c.embd / c.heads end
  if c.kv_heads == 0 then c.kv_heads = c.heads end
  if c.kv_heads and c.heads % c.kv_heads ~= 0 then
    lib.deny("%s: heads = %d is not a multiple of kv_heads = %d", who(self), c.heads, c.kv_heads)
  end
  self.config = c
  return c
end

-- {list = layers, ...}: the lists of blocks of a class, and their lengths by these settings.
local function stacks_of(class, settings)
  local out = {}
  for list, name in pairs(class.stacks or {blocks = "layers"}) do
    local count = settings[name]
    out[list] = count ~= 0 and count or settings.layers
  end
  return out
end

-- The shapes of the parameters by path, of a model with one layer in each list, and its config.
local function one_layer(class, settings)
  local copy, c = {}, nil
  need_whole(who(class), "layers", settings.layers)
  for name, value in pairs(settings) do copy[name] = value end
  for _, name in pairs(class.stacks or {}) do copy[name] = 1 end
  copy.layers = 1
  local list = module.shapes(function()
    local model = class(copy)
    c = model.config
    return model
  end)
  return list, c
end

--- sizes(class, settings) -> sums over the parameters of a model of these settings, and its config.
--- parameters, tensors: their numbers; matrices: of the elements of the matrices that multiply all
--- tokens, one of (vocab, embd) among them; matrices_of: of those in each list of blocks; values:
--- the inputs and outputs of matrices in layers, per token; layers: the number of layers.
function M.sizes(class, settings)
  local list, c = one_layer(class, settings)
  local sum = {parameters = 0, tensors = 0, matrices = c.vocab * c.embd, values = 0, layers = 0,
               matrices_of = {}}
  local stacks = stacks_of(class, settings)
  for name, count in pairs(stacks) do
    sum.layers, sum.matrices_of[name] = sum.layers + count, 0
  end
  for _, p in ipairs(list) do
    local name = p.path:match "^(%w+)%.1%."
    local in_layer, rows, cols = stacks[name], p.shape[1], p.shape[2]
    local times = in_layer or 1
    sum.parameters, sum.tensors = sum.parameters + times * rows * (cols or 1), sum.tensors + times
    if rows == c.vocab then sum.tensors = sum.tensors + math.ceil(rows / 2048) - 1 end
    if in_layer and cols then
      sum.matrices = sum.matrices + times * rows * cols
      sum.matrices_of[name] = sum.matrices_of[name] + times * rows * cols
      sum.values = sum.values + times * (rows + cols)
    end
  end
  return sum, c
end

--- Model.requirements(settings, tokens) -> {parameters=, tiles=, state=, bytes=}, for a class Model
--- of nn.decoder, nn.encoder or nn.encoder_decoder. Creates nothing. parameters: their number;
--- tiles: the approximate number of their tiles; state: bytes of parameters and moments; bytes: a
--- lower bound of the memory of a training step with AdamW and microbatches of `tokens` tokens.
---     GPT2.requirements(GPT2.size "gpt2", 1024).parameters  --> 124439808
local function requirements(class, settings, tokens)
  local sum, c = M.sizes(class, settings)
  local size = c.dtype == "bf16" and 2 or 4
  -- The moments are two f32. The backward pass reads at least three quarters of what goes into and
  -- comes out of products; all but x and delta, 2 C, can be recomputed.
  local kept = budget.activations() == "keep" and 0.75 * sum.values or 2 * c.embd * sum.layers
  local state = sum.parameters * (size + 8)
  return {parameters = sum.parameters, tiles = sum.tensors, state = state,
          bytes = state + kept * tokens * size}
end

--- Model.shapes(settings) -> {path = shape} of the parameters, of all layers only the last; and the
--- settings with defaults. Loading checks the shapes in the file before it creates a model.
---     GPT2.shapes({layers = 2, heads = 1, embd = 8, vocab = 9})["tok.weight"]  --> {9, 8}
function M.shapes(class, settings)
  local out = {}
  local list, c = one_layer(class, settings)
  local stacks = stacks_of(class, settings)
  for _, p in ipairs(list) do
    local stack, rest = p.path:match "^(%w+)%.1%.(.*)$"
    local count = stack and stacks[stack]
    out[count and ("%s.%.0f.%s"):format(stack, count, rest) or p.path] = p.shape
  end
  return out, c
end

--- class(name, fields, dimensions) -> a class of nn.module with configure, requirements and shapes.
--- dimensions: names of the settings that determine the shapes of its parameters. A class with
--- other lists of blocks than `blocks` names them in class.stacks, with the settings that are their
--- lengths (0: `layers`).
function M.class(name, fields, dimensions)
  local class = module.module(name)
  class.fields, class.dimensions, class.configure = fields, dimensions, configure
  class.requirements = function(settings, tokens) return requirements(class, settings, tokens) end
  class.shapes = function(settings) return M.shapes(class, settings) end
  return class
end

return M
