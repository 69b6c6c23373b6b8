-- Reads the config.json of Hugging Face folders: which class of models/ it is for, and the class's
-- settings. The file may come from anywhere, so every entry that is used is checked first; an error
-- names the file, the entry as the file calls it, its value and what is needed.
local arguments = require "nn.base.arguments"
local cjson = require "cjson"
local config_entries = require "nn.models.config_entries"
local config_fields = require "nn.io.config"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local registry = require "nn.models.registry"
local schema = require "nn.io.schema"
local sorted_keys = require("nn.base.tables").sorted_keys

local M = {}

-- Bounds that no model reaches, so that products of sizes and loops over layers stay possible.
local LARGEST, MOST_LAYERS = 2 ^ 28, 10000

-- The kinds of entries in `hugging_face.entries`. The sizes of schema.whole are bounded too.
local kinds = {
  text = schema.text, boolean = schema.boolean, number = schema.number,
  whole = schema.whole(0, LARGEST), texts = schema.list(schema.text), list = schema.list(),
  any = function() end,                                  -- the class checks it
}

-- The problem with the entries of config.json, or nil.
local function wrong_entry(class, config)
  local described = class.hugging_face
  for _, ours in ipairs(sorted_keys(described.settings)) do
    local name = described.settings[ours]
    local most = ours == "layers" and MOST_LAYERS or LARGEST
    local problem = schema.whole(1, most)(config[name], name)
    if problem then return problem end
  end
  for _, name in ipairs(sorted_keys(described.fixed or {})) do
    local value, needed = config[name], described.fixed[name]
    local same = config_entries.activation(value)
    if value ~= nil and value ~= needed
       and not (same and same == config_entries.activation(needed)) then
      return ("%s is %s; nnlua's %s needs %s"):format(name, arguments.describe(value),
                                                      class.class_name, arguments.describe(needed))
    end
  end
  for _, name in ipairs(sorted_keys(described.entries or {})) do
    local problem = schema.optional(kinds[described.entries[name]])(config[name], name)
    if problem then return problem end
  end
end

-- The problem with the architecture that config.json names, or nil: a model with another head has
-- the same entries. Names end in "ForHEAD", or in "Model" for no head or a tied one.
local function wrong_architecture(class, config)
  local problem = schema.optional(kinds.texts)(config.architectures, "architectures")
  local given = not problem and (config.architectures or {})[1]
  if not given then return problem end
  local described = class.hugging_face
  local expected = described.types[config.model_type or next(described.types)]
  local function head_of(name) return name:match "For%u%w*$" or name:match "Model$" end
  local heads = described.heads or {head_of(expected), "Model"}
  for _, head in ipairs(heads) do
    if head_of(given) == head then return nil end
  end
  return ("architectures is %s; nnlua's %s needs a name that ends in %s"):format(
    given, class.class_name, table.concat(heads, " or "))
end

-- The problem with an entry that is a setting of the class, or nil.
local function wrong_setting(field, value, name)
  local problem = field and config_fields.problem(field, value)
  if not problem and type(value) == "number" then
    return (field and field.whole and kinds.whole or kinds.number)(value, name)
  end
  return problem and ("%s %s"):format(name, problem)
end

-- A message about settings with the names of config.json: "embd = 8" becomes "hidden_size = 8".
local function in_their_words(described, message)
  return (message:gsub("([%a_]+) = ", function(ours)
    local theirs = described.settings[ours] or (described.optional or {})[ours]
    return theirs and theirs .. " = "
  end))
end

-- The problem with layer_types, the kind of attention in each of `count` blocks, or nil. settings:
-- with defaults.
local function wrong_layer_type(class, types, settings, count)
  if types == nil then return nil end
  local problem = kinds.texts(types, "layer_types")
  if problem then return problem end
  if #types ~= count then
    return ("layer_types has the length %d; the model has %d layers"):format(#types, count)
  end
  for i, given in ipairs(types) do
    local window = class.window and class.window(settings, i) or 0
    local needed = window > 0 and "sliding_attention" or "full_attention"
    if given ~= needed then
      return ("layer_types[%d] is '%s'; nnlua's %s has %s there, by its other entries"):format(
        i - 1, given, class.class_name, needed)
    end
  end
end

-- The settings in a checked config.json; or nil and the problem.
local function settings_of(class, config)
  local described, settings = class.hugging_face, {}
  local fields = class.fields and class.fields() or {}
  for ours, name in pairs(described.settings) do settings[ours] = config[name] end
  for _, ours in ipairs(sorted_keys(described.optional or {})) do
    local name = described.optional[ours]
    settings[ours] = config[name]
    local problem = config[name] ~= nil and wrong_setting(fields[ours], config[name], name)
    if problem then return nil, problem end
  end
  if described.read then
    local more, problem = described.read(config)
    if not more then return nil, problem end
    for name, value in pairs(more) do settings[name] = value end
  end
  if not class.shapes then return settings end
  local shapes, full = registry.shapes(class, settings)
  if not shapes then return nil, in_their_words(described, full) end
  return settings, wrong_layer_type(class, config.layer_types, full, settings.layers)
end

-- What a folder without config.json has, by the pattern of a file's name.
local others = {
  {"^adapter_config%.json$", "an adapter (adapter_config.json); merge it into its base model"},
  {"^model_index%.json$", "a pipeline of diffusers (model_index.json), not a language model"},
  {"%.gguf$", "GGUF files; convert them to safetensors with config.json"},
  {"^params%.json$", "a checkpoint in Meta's own format (params.json); convert it to that of "
                     .. "transformers"},
}

--- refuse_folder(folder, missing) raises the error for a folder without config.json. missing: what
--- it should have, if nothing in it is known.
function M.refuse_folder(folder, missing)
  for _, other in ipairs(others) do
    for _, name in ipairs(files.list(folder)) do
      if name:find(other[1]) then missing = "it has " .. other[2] end
    end
  end
  lib.deny("'%s' contains no model: %s", folder, missing)
end

--- read(folder) -> the class of the model in a folder, its settings, and {name = default} of the
--- sizes that config.json does not state. Errors: a config.json that is malformed, or of a model
--- that nnlua does not have.
function M.read(folder)
  local path = files.join(folder, "config.json")
  if not files.exists(path) then M.refuse_folder(folder, "neither config.json nor a checkpoint") end
  local given = json.read(path)
  if json.is_list(given) and #given > 0 then lib.deny("%s is a list, not an object", path) end
  local class = registry.of_type(given, path)
  local quantized = given.quantization_config
  if quantized ~= nil and quantized ~= cjson.null then
    local how = type(quantized) == "table" and quantized.quant_method
    lib.deny("%s has a quantization_config%s; nnlua reads weights that are not quantized", path,
             type(how) == "string" and (" (%s)"):format(how) or "")
  end
  local kind = given.model_type or next(class.hugging_face.types)
  local config, problem = config_entries.resolve(class, kind, given)
  problem = problem or wrong_entry(class, config) or wrong_architecture(class, config)
  local settings
  if not problem then settings, problem = settings_of(class, config) end
  if problem then lib.deny("%s: %s", path, problem) end
  local left_out = config_entries.left_out(class, kind, given)
  if left_out then
    lib.warn_once(("%s: entries that transformers' %s does not read, and so are not used: %s")
                  :format(path, kind, left_out))
  end
  return class, settings, config_entries.assumed(class, kind, given)
end

return M
