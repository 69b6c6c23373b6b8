-- Models in the format of Hugging Face's transformers: config.json, model.safetensors (or shards
-- with an index) and the tokenizer's files. A model's class describes its format in a table
-- `hugging_face`:
--
--   model_type, architecture   as in config.json
--   prefix            optional prefix of the tensor names in files
--   name(path) -> the tensor's name in files (without prefix), and whether it is stored transposed;
--                     nil for an unknown path
--   settings          {ours = "theirs"}: settings that are positive whole numbers in config.json
--   fixed             {theirs = value}: values that config.json must have, if it has the entry, for
--                     the model to compute the same function
--   read(config) -> further settings; or nil and the problem with config.json
--   write(settings) -> further entries of config.json
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local registry = require "nn.models.registry"
local safetensors = require "nn.io.safetensors"
local tape = require "nn.core.tape"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- The name in files (without prefix) of a parameter, and whether it is stored transposed.
local function their_name(class, path)
  local name, transposed = class.hugging_face.name(path)
  if name then return name, transposed end
  lib.fail("'%s' is not a parameter of %s in transformers", path, class.class_name)
end

-- ### Loading

-- The class of the model, and its settings.
local function read_config(folder)
  local path = files.join(folder, "config.json")
  local config = json.read(path)
  local class = registry.of_type(config.model_type, path)
  local described, settings = class.hugging_face, {}
  for name, value in pairs(described.fixed or {}) do
    if config[name] ~= nil and config[name] ~= value then
      lib.fail("%s: %s is %s; nnlua's %s needs %s", path, name, tostring(config[name]),
               class.class_name, tostring(value))
    end
  end
  for ours, name in pairs(described.settings) do
    local value = config[name]
    if type(value) ~= "number" or value < 1 or value % 1 ~= 0 then
      lib.fail("%s: %s is %s; a whole number of at least 1 is needed", path, name, tostring(value))
    end
    settings[ours] = value
  end
  if described.read then
    local more, problem = described.read(config)
    if not more then lib.fail("%s: %s", path, problem) end
    for name, value in pairs(more) do settings[name] = value end
  end
  return class, settings
end

-- The entries by name of model.safetensors (preferred, as in transformers) or of an index.
local function open_weights(folder)
  local whole = files.join(folder, "model.safetensors")
  local index = whole .. ".index.json"
  if files.exists(whole) then return safetensors.open(whole).by_name end
  if files.exists(index) then return safetensors.open_index(index) end
  local pickled = files.exists(files.join(folder, "pytorch_model.bin"))
  lib.fail("'%s' has neither model.safetensors nor model.safetensors.index.json%s", folder,
           pickled and "; pytorch_model.bin can run any code and is not read: in Python, "
           .. "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER) writes "
           .. "safetensors" or "")
end

-- The entry of a tensor, which must have this shape.
local function find(weights, name, shape)
  local entry = weights.by_name[weights.prefix .. name] or weights.by_name[name]
  if not entry then
    lib.fail("'%s' has no tensor '%s' (nor with the prefix '%s')", weights.folder, name,
             weights.prefix)
  end
  local given, expected = table.concat(entry.shape, ","), table.concat(shape, ",")
  if given ~= expected then
    lib.fail("%s: '%s' is (%s); config.json implies (%s)", entry.file.path, entry.name, given,
             expected)
  end
  return entry
end

-- The same for a parameter of the model; also returns whether it is stored transposed.
local function find_parameter(class, path, shape, weights)
  local name, transposed = their_name(class, path)
  return find(weights, name, transposed and {shape[2], shape[1]} or shape), transposed
end

-- Refuses sizes that the files do not have, before a model of these sizes is created.
local function check_shapes(class, settings, weights)
  for path, shape in pairs(class.shapes and class.shapes(settings) or {}) do
    find_parameter(class, path, shape, weights)
  end
end

local function copy_parameter(p, weights, class)
  local entry, transposed = find_parameter(class, p.path, p.tensor.shape, weights)
  if entry.dtype == "F32" and not transposed and p.tensor.dtype == "f32" then
    return entry.file:copy_into(entry.name, p.tensor)       -- from the mapped file into the tiles
  end
  local source = entry.file:tensor(entry.name)
  p.tensor:copy_(source, {transposed = transposed})
  source:release()
  engine.sync()                                    -- so that only one such copy exists at a time
end

-- The tokenizer in a folder, or nil.
local function tokenizer_in(folder)
  for _, name in ipairs {"tokenizer.json", "vocab.json", "vocabulary.json"} do
    if files.exists(files.join(folder, name)) then return tokenizers.tokenizer(folder) end
  end
end

--- outline(folder) -> the class of the model, its settings from config.json, the tokenizer or nil.
function M.outline(folder)
  local class, settings = read_config(folder)
  return class, settings, tokenizer_in(folder)
end

local load_options = arguments.names "dropout dtype"

--- nn.load_hf(folder, {dropout=0, dtype="f32"}) -> model, tokenizer (nil if the folder has none).
--- Loads a Hugging Face model (config.json, model.safetensors or shards) of a type that a file in
--- models/ describes, such as models/gpt2.lua for GPT-2. Weights are copied one by one from the
--- mapped file to tiles; transposed ones and other dtypes through a temporary copy. `dtype`: that
--- of the model, f32 or bf16. Errors: missing files or tensors; a config.json that nnlua's model
--- does not support.
---     nn.save_hf("another", model)
---     nn.load_hf("another").config.embd  --> 16
function M.load_hf(folder, options)
  arguments.need(type(folder) == "string", "load_hf", "the folder", folder, "a text is needed")
  options = arguments.options("load_hf", options, load_options)
  if not files.list(folder) then lib.fail("there is no folder '%s'", folder) end
  local class, settings = read_config(folder)
  local weights = {folder = folder, prefix = class.hugging_face.prefix or "",
                   by_name = open_weights(folder)}
  check_shapes(class, settings, weights)
  local tokenizer = tokenizer_in(folder)
  for name, value in pairs(options) do settings[name] = value end
  local model = class(settings)
  tape.no_grad(function()
    for _, p in ipairs(model:parameters()) do copy_parameter(p, weights, class) end
  end)
  return model, tokenizer
end

-- ### Saving

local function config_of(model, described, tokenizer)
  local last = tokenizer and tokenizer.special and tokenizer.special["<|endoftext|>"]
  local config = described.write and described.write(model.config) or {}
  config.model_type, config.architectures = described.model_type, {described.architecture}
  config.dtype = model.config.dtype == "bf16" and "bfloat16" or "float32"
  config.bos_token_id, config.eos_token_id = last, last
  for ours, name in pairs(described.settings) do config[name] = model.config[ours] end
  for name, value in pairs(described.fixed or {}) do config[name] = value end
  return config
end

local save_options = arguments.names "shard_bytes"

--- nn.save_hf(folder, model, tokenizer, {shard_bytes=5e9}): writes a model for from_pretrained() of
--- transformers: config.json, model.safetensors (or shards of at most shard_bytes and an index),
--- and the files of the tokenizer, if given (a char vocabulary has a format of nnlua's own).
--- Removes other weights from the folder. Errors: the class has no table hugging_face, or the model
--- has parameters that it does not describe.
---     nn.save_hf("out/model", model, nn.train_tokenizer("aaaa", {size = 258}))
function M.save_hf(folder, model, tokenizer, options)
  arguments.need(type(folder) == "string", "save_hf", "the folder", folder, "a text is needed")
  local class = module.is_module(model) and getmetatable(model)
  local described = class and class.hugging_face
  arguments.need(described and type(model.config) == "table", "save_hf", "the model", model,
                 "its class needs a table hugging_face, as in models/gpt2.lua")
  options = arguments.options("save_hf", options, save_options)
  local limit = arguments.whole("save_hf", "shard_bytes", options.shard_bytes or 5e9)
  files.make_folder(folder, "the model's folder")
  local entries = {}
  for i, p in ipairs(model:parameters()) do
    local name, transposed = their_name(class, p.path)
    entries[i] = {path = (described.prefix or "") .. name, tensor = p.tensor,
                  transposed = transposed}
  end
  table.sort(entries, function(a, b) return a.path < b.path end)
  safetensors.write_shards(folder, "model", entries, {format = "pt"}, limit)
  if tokenizer then tokenizer:save(folder) end
  local config = files.json(config_of(model, described, tokenizer), "")
  files.write(files.join(folder, "config.json"), config .. "\n")
end

return M
