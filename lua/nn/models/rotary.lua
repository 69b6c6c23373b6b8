-- Rotary position embeddings in the config.json of transformers, for models with the settings
-- theta, scaling, factor, low, high, original and rope_scale (see models/llama.lua and nn.rope).
local M = {}

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
  out.low, out.high = 1, 32                                  -- the defaults of yarn
  for ours, name in pairs(theirs[kind]) do
    if p[name] ~= nil then out[ours] = p[name] end
    if type(out[ours]) ~= "number" and ours ~= "original" then
      return nil, ("%s of the rotary embedding is %s; a number is needed"):format(
        name, tostring(out[ours]))
    end
  end
  if kind == "linear" then out.low, out.high = nil, nil return out end
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
