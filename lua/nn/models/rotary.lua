-- Rotary position embeddings in the config.json of transformers, for models with the settings
-- theta, scaling, factor, low, high, original and rope_scale (see models/llama.lua and nn.rope).
local field = require("nn.io.config").field
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local schema = require "nn.io.schema"
local sorted_keys = require("nn.base.tables").sorted_keys

local M = {}

--- with_fields(fields) -> fields of nn.decoder, with the settings of the rotary embedding.
function M.with_fields(fields)
  fields.theta = field(10000, "base of the rotary frequencies", {min = 1, real = true})
  fields.scaling = field("none", "stretches rotary frequencies for a longer context",
                         {choices = {"none", "linear", "llama3", "yarn"}})
  fields.factor = field(1, "of the scaling", {min = 0, real = true})
  fields.low = field(1, "turns below which a frequency is divided", {min = 0, real = true})
  fields.high = field(4, "turns from which a frequency is kept", {min = 0, real = true})
  fields.original = field(0, "context length before the scaling", {min = 0})
  fields.rope_scale = field(1, "of rotated queries and keys", {min = 0, real = true})
  return fields
end

-- Raises an error for settings with which nn.rope cannot work.
local function check(c, head_dim, rotated)
  if rotated < 2 or rotated % 2 ~= 0 or rotated > head_dim then
    lib.deny("rotary embedding: %.0f of the %.0f components of a head cannot rotate; an even "
             .. "number of at least 2 is needed", rotated, head_dim)
  end
  if c.theta <= 1 then
    lib.deny("rotary embedding: theta = %g; more than 1 is needed", c.theta)
  end
  if not c.scaling or c.scaling == "none" then return end
  if c.factor <= 0 then
    lib.deny("rotary embedding: factor = %g; more than 0 is needed", c.factor)
  end
  if c.scaling == "linear" then return end
  if c.low <= 0 or c.high <= c.low then
    lib.deny("rotary embedding: low = %g and high = %g; 0 < low < high is needed", c.low, c.high)
  end
  if c.original < 1 then
    lib.deny("rotary embedding: original = %g; %s needs the context length of the training",
             c.original, c.scaling)
  end
end

--- options(settings, rotated) -> the options of nn.rope. `rotated`: how many components of a head
--- rotate, by default all. Errors: settings with which it cannot work.
function M.options(c, rotated)
  local head_dim = c.head_dim or c.embd / c.heads
  check(c, head_dim, rotated or head_dim)
  return {heads = c.heads, kv_heads = c.kv_heads, rotated = rotated, base = c.theta,
          scaling = c.scaling, factor = c.factor, low = c.low, high = c.high,
          original = c.original, scale = c.rope_scale}
end

--- rotate(qkv, past, options) -> qkv with rotated queries and keys. past: of nn.attend, or nil.
function M.rotate(qkv, past, options)
  return (ops.call("rope", qkv, past and past.start, options))
end

local kinds = {default = "none", linear = "linear", llama3 = "llama3", yarn = "yarn"}
local theirs = {
  linear = {factor = "factor"},
  llama3 = {factor = "factor", low = "low_freq_factor", high = "high_freq_factor",
            original = "original_max_position_embeddings"},
  yarn = {factor = "factor", low = "beta_slow", high = "beta_fast",
          original = "original_max_position_embeddings"},
}

local function magnitude(factor, scale)
  return factor > 1 and 0.1 * scale * math.log(factor) + 1 or 1
end

-- The factor of rotated queries and keys: that of the file, else as in transformers.
local function yarn_scale(p, factor)
  if p.attention_factor then return p.attention_factor end
  local some, all = p.mscale, p.mscale_all_dim
  if some and all and some ~= 0 and all ~= 0 then
    return magnitude(factor, some) / magnitude(factor, all)
  end
  return magnitude(factor, 1)
end

local number, text = schema.optional(schema.number), schema.optional(schema.text)
local wrong_parameter = schema.fields {
  rope_type = text, type = text, rope_theta = number, partial_rotary_factor = number,
  factor = number, low_freq_factor = number, high_freq_factor = number, beta_slow = number,
  beta_fast = number, attention_factor = number, mscale = number, mscale_all_dim = number,
  truncate = schema.optional(schema.boolean),
  original_max_position_embeddings = schema.optional(schema.whole(1)),
}
local wrong_entry = schema.fields {
  rope_theta = number, original_max_position_embeddings = schema.optional(schema.whole(1)),
  partial_rotary_factor = number,
}

-- The problem with parameters that nnlua does not support, or nil: by kind of layer, or for a part
-- of a head where the model rotates all of it.
local function wrong_kind(config, p, where, rotates_part)
  if #p > 0 then return ("%s is a list; an object is needed"):format(where) end
  for _, name in ipairs(sorted_keys(p)) do
    if type(p[name]) == "table" and name:find "attention$" then
      return ("%s.%s: frequencies by kind of layer are not supported"):format(where, name)
    end
  end
  local part = p.partial_rotary_factor or config.partial_rotary_factor or 1
  if part ~= 1 and not rotates_part then
    return ("partial_rotary_factor is %g; nnlua's model rotates whole heads"):format(part)
  end
end

--- read(config, rotates_part) -> settings; or nil and the problem with config.json. rotates_part:
--- the model reads partial_rotary_factor itself.
function M.read(config, rotates_part)
  local where = config.rope_parameters ~= nil and "rope_parameters" or "rope_scaling"
  local p = config[where] == nil and {} or config[where]
  local problem = wrong_parameter(p, where) or wrong_entry(config)
    or wrong_kind(config, p, where, rotates_part)
  if problem then return nil, problem end
  local kind = p.rope_type or p.type or "default"
  local out = {theta = p.rope_theta or config.rope_theta, scaling = kinds[kind]}
  if not out.scaling then
    return nil, ("rope_type is %s; default, linear, llama3 or yarn is needed"):format(
      tostring(kind))
  end
  if kind == "default" then return out end
  if kind == "yarn" then out.low, out.high = 1, 32 end       -- its defaults
  for ours, name in pairs(theirs[kind]) do
    if p[name] ~= nil then out[ours] = p[name] end
    if type(out[ours]) ~= "number" and ours ~= "original" then
      return nil, ("%s of the rotary embedding is %s; a number is needed"):format(
        name, tostring(out[ours]))
    end
  end
  if kind == "linear" then return out end
  out.original = out.original or config.original_max_position_embeddings
    or config.max_position_embeddings
  if kind == "yarn" and p.truncate == false then return nil, "truncate of yarn is false" end
  if kind == "yarn" then out.rope_scale = yarn_scale(p, out.factor) end
  return out
end

--- write(settings) -> entries of config.json, in the form that all versions of transformers read.
function M.write(c)
  local out = {rope_theta = c.theta}
  if c.scaling == "none" then return out end
  local p = {rope_type = c.scaling}
  for ours, name in pairs(theirs[c.scaling]) do p[name] = c[ours] end
  if c.scaling == "yarn" then p.attention_factor = c.rope_scale end
  out.rope_scaling = p
  return out
end

return M
