-- Rotary position embeddings in the config.json of transformers, for models with the settings
-- theta, scaling, factor, low, high, original and rope_scale (see models/llama.lua and nn.rope).
local arguments = require "nn.base.arguments"
local cjson = require "cjson"
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

--- problem(settings, names) -> the problem with settings of frequencies with which nn.rope cannot
--- work, or nil. names: {setting = name} for it, where they have others than here.
function M.problem(c, names)
  local function name(ours) return names and names[ours] or ours end
  if c.theta <= 1 then return ("%s = %g; more than 1 is needed"):format(name "theta", c.theta) end
  if not c.scaling or c.scaling == "none" then return nil end
  if c.factor <= 0 then
    return ("%s = %g; more than 0 is needed"):format(name "factor", c.factor)
  end
  if c.scaling == "linear" then return nil end
  if c.low <= 0 or c.high <= c.low then
    return ("%s = %g and %s = %g; 0 < %s < %s is needed"):format(
      name "low", c.low, name "high", c.high, name "low", name "high")
  end
  if (c.rope_scale or 0) < 0 then
    return ("%s = %g; at least 0 is needed"):format(name "rope_scale", c.rope_scale)
  end
  if c.original < 1 then
    return ("%s = %g; %s needs the context length of the training"):format(
      name "original", c.original, c.scaling)
  end
end

-- Raises an error for settings with which nn.rope cannot work.
local function check(c, head_dim, rotated)
  if rotated < 2 or rotated % 2 ~= 0 or rotated > head_dim then
    lib.deny("rotary embedding: %.0f of the %.0f components of a head cannot rotate; an even "
             .. "number of at least 2 is needed", rotated, head_dim)
  end
  local problem = M.problem(c)
  if problem then lib.deny("rotary embedding: %s", problem) end
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

local number, text, whole = schema.number, schema.text, schema.whole(1)
-- Entries of the parameters by kind. A yarn takes null for its numbers, as if they were absent;
-- truncate is another one, since null counts as false.
local known = {
  default = {}, linear = {factor = number},
  llama3 = {factor = number, low_freq_factor = number, high_freq_factor = number,
            original_max_position_embeddings = whole},
  yarn = {factor = schema.optional(number), beta_slow = schema.optional(number),
          beta_fast = schema.optional(number), attention_factor = schema.optional(number),
          mscale = schema.optional(number), mscale_all_dim = schema.optional(number),
          original_max_position_embeddings = whole, truncate = schema.boolean},
}
local always = {rope_type = text, type = text, rope_theta = number, partial_rotary_factor = number}

--- with_entries(entries) -> the entries of a model's table hugging_face, with those that read uses.
function M.with_entries(entries)
  entries.rope_theta, entries.partial_rotary_factor = "number", "number"
  entries.rope_parameters, entries.rope_scaling = "any", "any"
  entries.original_max_position_embeddings = "whole"
  return entries
end

-- The problem with parameters that nnlua does not use, or nil.
local function wrong_parameters(p, where, kind)
  for _, name in ipairs(sorted_keys(p)) do
    local needed, value = always[name] or known[kind][name], p[name]
    local problem = needed and needed(value, where .. "." .. name)
    if not needed and type(value) == "table" and name:find "attention$" then
      problem = ("%s.%s: frequencies by kind of layer are not supported"):format(where, name)
    elseif not needed and value ~= false and value ~= cjson.null then
      problem = ("%s.%s is %s, which a rotary embedding of rope_type %s does not use"):format(
        where, name, arguments.describe(value), kind)
    end
    if problem then return problem end
  end
end

-- Whether there is an object that is not empty, which transformers takes for the parameters.
local function is_given(p) return p ~= nil and (type(p) ~= "table" or next(p) ~= nil) end

--- parameters(config) -> the rotary parameters in config.json, {} if it has none, and the kind; or
--- nil and the problem. rope_scaling replaces rope_parameters, as in transformers.
function M.parameters(config)
  local where = is_given(config.rope_scaling) and "rope_scaling" or "rope_parameters"
  local p = is_given(config[where]) and config[where] or {}
  if type(p) ~= "table" then
    return nil, ("%s is %s; an object is needed"):format(where, arguments.describe(p))
  end
  if #p > 0 then return nil, ("%s is a list; an object is needed"):format(where) end
  local kind = p.rope_type
  if kind == nil then kind = p.type end
  if kind == nil then kind = "default" end
  if not known[kind] then
    return nil, ("rope_type is %s; default, linear, llama3 or yarn is needed"):format(
      kind == cjson.null and "null" or tostring(kind))
  end
  local problem = wrong_parameters(p, where, kind)
  if not problem and p.type ~= nil and p.type ~= kind then
    problem = ("%s has rope_type '%s' and type '%s'; remove one"):format(where, kind, p.type)
  end
  if problem then return nil, problem end
  return p, kind
end

local function given(value) if value ~= cjson.null then return value end end

local function magnitude(factor, scale)
  return factor > 1 and 0.1 * scale * math.log(factor) + 1 or 1
end

-- The factor of rotated queries and keys: that of the file, else as in transformers.
local function yarn_scale(p, factor)
  local own, some, all = given(p.attention_factor), given(p.mscale), given(p.mscale_all_dim)
  if own then return own end
  if some and all and some ~= 0 and all ~= 0 then
    return magnitude(factor, some) / magnitude(factor, all)
  end
  return magnitude(factor, 1)
end

-- Completes the settings of a yarn -> out; or nil and the problem.
local function read_yarn(config, p, out)
  if p.truncate == false then return nil, "truncate of yarn is false, which is not supported" end
  if p.factor == cjson.null then
    out.factor = config.max_position_embeddings / out.original
  end
  out.low, out.high = given(p.beta_slow) or 1, given(p.beta_fast) or 32       -- its defaults
  if out.low == 0 then out.low = 1 end                             -- 0 stands for the default too
  if out.high == 0 then out.high = 32 end
  out.rope_scale = yarn_scale(p, out.factor)
  return out
end

-- The settings of the parameters p of a kind; or nil and the problem.
local function settings_of(config, p, kind)
  local out = {theta = p.rope_theta or config.rope_theta, scaling = kinds[kind]}
  local part = p.partial_rotary_factor or config.partial_rotary_factor or 1
  if part ~= 1 then
    return nil, ("partial_rotary_factor is %g; nnlua's model rotates whole heads"):format(part)
  end
  if kind == "default" then return out end
  for ours, name in pairs(theirs[kind]) do
    out[ours] = given(p[name])
    if p[name] == nil and name:find "fact" then
      return nil, ("%s is missing in rope_parameters or rope_scaling of rope_type %s; a number is "
                   .. "needed"):format(name, kind)
    end
  end
  if kind == "linear" then return out end
  out.original = config.original_max_position_embeddings or out.original
    or config.max_position_embeddings
  if type(out.original) ~= "number" or out.original < 1 then
    return nil, ("original_max_position_embeddings is %s; at least 1 is needed"):format(
      tostring(out.original))
  end
  if kind == "yarn" then return read_yarn(config, p, out) end
  return out
end

--- read(config) -> settings; or nil and the problem with config.json.
function M.read(config)
  local p, kind = M.parameters(config)
  if not p then return nil, kind end
  local out, problem = settings_of(config, p, kind)
  if not out then return nil, problem end
  local names = {theta = "rope_theta", rope_scale = "attention_factor"}
  for ours, name in pairs(theirs[kind] or {}) do names[ours] = name end
  problem = M.problem(out, names)
  if problem then return nil, problem end
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
