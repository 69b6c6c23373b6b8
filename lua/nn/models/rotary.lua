-- Rotary position embeddings in the config.json of transformers, for models with the settings
-- theta, scaling, factor, low, high, original and rope_scale (see models/llama.lua and nn.rope).
local field = require("nn.io.config").field
local ops = require "nn.core.op"

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

--- options(settings) -> the options of nn.rope.
function M.options(c)
  return {heads = c.heads, kv_heads = c.kv_heads, base = c.theta, scaling = c.scaling,
          factor = c.factor, low = c.low, high = c.high, original = c.original,
          scale = c.rope_scale}
end

--- rotate(qkv, memory, options) -> qkv with rotated queries and keys. memory: of nn.attend, or nil.
function M.rotate(qkv, memory, options)
  return (ops.call("rope", qkv, memory and memory.start, options))
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
  if type(p.attention_factor) == "number" then return p.attention_factor end
  local some, all = p.mscale, p.mscale_all_dim
  if type(some) == "number" and type(all) == "number" and some ~= 0 and all ~= 0 then
    return magnitude(factor, some) / magnitude(factor, all)
  end
  return magnitude(factor, 1)
end

--- read(config) -> settings; or nil and the problem with config.json.
function M.read(config)
  local p = config.rope_parameters or config.rope_scaling or {}
  if type(p) ~= "table" then return nil, "rope_scaling is not an object" end
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
