-- Models in the format of Hugging Face's transformers: config.json, model.safetensors (or shards
-- with an index) and the tokenizer's files. A model's class describes its format in a table
-- `hugging_face`:
--
--   types             {model_type = "architecture"}, as in config.json
--   prefix            optional prefix of the tensor names in files
--   name(path, settings) -> the tensor's name in files, and whether it is stored transposed; or a
--                     list {{name, rows, first}, ...}: the parameter's rows are `rows` rows of
--                     tensor `name` from row `first` (from 0; default 0) on, then those of the next
--                     entry; nil for an unknown path. Names are without prefix; "/name" has none
--   old_name(name)    optional: the name (without prefix) in older files
--   settings          {ours = "theirs"}: settings that are positive whole numbers in config.json
--   optional          {ours = "theirs"}: other settings, if config.json has them
--   fixed             {theirs = value}: values that config.json must have, if it has the entry, for
--                     the model to compute the same function
--   entries           {theirs = kind}: other entries that read uses, and that config.json may have:
--                     "text", "boolean", "number", "whole" (at least 0), "texts" or "list"
--   read(config) -> further settings; or nil and the problem with config.json
--   write(settings) -> further entries of config.json; model_type, if there are several types;
--                     architectures, if not that of `types`
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local generation_config = require "nn.models.generation_config"
local hf_config = require "nn.models.hf_config"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local registry = require "nn.models.registry"
local safetensors = require "nn.io.safetensors"
local sorted_keys = require("nn.base.tables").sorted_keys
local tape = require "nn.core.tape"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- The name in files (without prefix) of a parameter, and whether it is stored transposed; or the
-- list of its parts, {name=, rows=, first=}.
local function their_name(class, path, settings)
  local name, transposed = class.hugging_face.name(path, settings)
  if not name then
    lib.fail("'%s' is not a parameter of %s in transformers", path, class.class_name)
  end
  if type(name) == "string" then return name, transposed end
  local parts = {}
  for i, part in ipairs(name) do
    parts[i] = {name = part[1], rows = part[2], first = part[3] or 0}
  end
  return parts
end

local function with_prefix(prefix, name)
  return name:sub(1, 1) == "/" and name:sub(2) or prefix .. name
end

-- ### Loading

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
  local by_name, old = weights.by_name, weights.old_name and weights.old_name(name)
  local entry = by_name[with_prefix(weights.prefix, name)] or by_name[name]
    or old and by_name[with_prefix(weights.prefix, old)]
  if not entry then
    lib.fail("'%s' has no tensor '%s' (nor with the prefix '%s')", weights.folder,
             with_prefix("", name), weights.prefix)
  end
  local given, expected = table.concat(entry.shape, ","), table.concat(shape, ",")
  if given ~= expected then
    lib.fail("%s: '%s' is (%s); config.json implies (%s)", entry.file.path, entry.name, given,
             expected)
  end
  return entry
end

-- The entry of a parameter of the model, and whether it is stored transposed; or its parts, with
-- their entries.
local function find_parameter(class, path, shape, weights, settings)
  local name, transposed = their_name(class, path, settings)
  if type(name) == "string" then
    return find(weights, name, transposed and {shape[2], shape[1]} or shape), transposed
  end
  local rows = {}                                            -- of each tensor
  for _, part in ipairs(name) do rows[part.name] = (rows[part.name] or 0) + part.rows end
  for _, part in ipairs(name) do
    part.entry = find(weights, part.name, {rows[part.name], unpack(shape, 2)})
  end
  return name
end

-- Refuses sizes that the files do not have, before a model of these sizes is created.
local function check_shapes(class, settings, weights)
  if not class.shapes then return end
  local shapes, full = registry.shapes(class, settings)
  if not shapes then lib.fail("%s: %s", files.join(weights.folder, "config.json"), full) end
  local paths = sorted_keys(shapes)
  for i = #paths, 1, -1 do   -- tok.weight first: wrong heads would make many parts of a block's
    find_parameter(class, paths[i], shapes[paths[i]], weights, full)
  end
end

-- Copies the rows of parts to the parameter, tensor by tensor.
local function copy_parts(p, parts)
  local row, by_entry, order = 1, {}, {}
  for _, part in ipairs(parts) do
    if not by_entry[part.entry] then
      by_entry[part.entry], order[#order + 1] = {}, part.entry
    end
    table.insert(by_entry[part.entry], {from = part.first, count = part.rows, to = row})
    row = row + part.rows
  end
  for _, entry in ipairs(order) do
    local source = entry.file:tensor(entry.name)
    local converted = source.dtype == p.tensor.dtype and source or source:to(p.tensor.dtype)
    for _, range in ipairs(by_entry[entry]) do
      local start = #p.tensor.shape == 1 and {range.to} or {range.to, 1}
      p.tensor:assign_(converted:slice(1, range.from + 1, range.from + range.count), start)
    end
    converted:release()
    source:release()
    engine.sync()                                  -- so that only one such copy exists at a time
  end
end

local function copy_parameter(p, weights, class, settings)
  local entry, transposed = find_parameter(class, p.path, p.tensor.shape, weights, settings)
  if entry[1] then return copy_parts(p, entry) end
  if entry.dtype == "F32" and not transposed and p.tensor.dtype == "f32" then
    entry.file:copy_into(entry.name, p.tensor)       -- from the mapped file into the tiles
    return cluster.drop(p.tensor)
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
  local class, settings = hf_config.read(folder)
  return class, settings, tokenizer_in(folder)
end

local load_options = arguments.names "dropout dtype"

--- nn.load_hf(folder, {dropout=0, dtype="f32"}) -> model, tokenizer (nil if the folder has none).
--- Loads a Hugging Face model (config.json, model.safetensors or shards) of a type that a file in
--- models/ describes, such as models/gpt2.lua for GPT-2. Weights are copied one by one from the
--- mapped file to tiles; transposed ones and other dtypes through a temporary copy. `dtype`: that
--- of the model, f32 or bf16. model.generation: options for nn.generate, those of temperature,
--- top_k, top_p, repetition_penalty and stop_ids that generation_config.json has (stop_ids also
--- from config.json; temperature 0 if do_sample is false). Errors: missing files or tensors; a
--- config.json that nnlua's model does not support; a generation_config.json with invalid values.
---     nn.save_hf("another", model)
---     nn.load_hf("another").config.embd  --> 16
function M.load_hf(folder, options)
  arguments.need(type(folder) == "string", "load_hf", "the folder", folder, "a text is needed")
  options = arguments.options("load_hf", options, load_options)
  if not files.list(folder) then lib.fail("there is no folder '%s'", folder) end
  local class, settings = hf_config.read(folder)
  local weights = {folder = folder, prefix = class.hugging_face.prefix or "",
                   old_name = class.hugging_face.old_name, by_name = open_weights(folder)}
  for name, value in pairs(options) do settings[name] = value end
  check_shapes(class, settings, weights)
  local tokenizer = tokenizer_in(folder)
  local model = class(settings)
  generation_config.attach(model, folder)
  tape.no_grad(function()
    for _, p in ipairs(model:parameters()) do copy_parameter(p, weights, class, model.config) end
  end)
  return model, tokenizer
end

-- ### Saving

local function config_of(model, described, tokenizer)
  local special = tokenizer and tokenizer.special or {}
  local config = described.write and described.write(model.config) or {}
  config.model_type = config.model_type or next(described.types)
  config.architectures = config.architectures or {described.types[config.model_type]}
  config.dtype = model.config.dtype == "bf16" and "bfloat16" or "float32"
  config.bos_token_id = tokenizer and tokenizer.bos or special["<|endoftext|>"]
  config.eos_token_id = tokenizer and tokenizer.eos or special["<|endoftext|>"]
  for ours, name in pairs(described.settings) do config[name] = model.config[ours] end
  for ours, name in pairs(described.optional or {}) do config[name] = model.config[ours] end
  for name, value in pairs(described.fixed or {}) do config[name] = value end
  return config
end

-- Adds the entries of a parameter, for safetensors.write_shards.
local function add_entries(entries, class, p, settings)
  local prefix = class.hugging_face.prefix or ""
  local name, transposed = their_name(class, p.path, settings)
  if type(name) == "string" then
    entries[#entries + 1] = {path = with_prefix(prefix, name), tensor = p.tensor,
                             transposed = transposed}
    return
  end
  local row, rows = 0, {}                        -- rows: the ranges of each tensor, in its order
  for _, part in ipairs(name) do
    rows[part.name] = rows[part.name] or {}
    table.insert(rows[part.name], {first = row, count = part.rows, there = part.first})
    row = row + part.rows
  end
  for part, ranges in pairs(rows) do
    table.sort(ranges, function(a, b) return a.there < b.there end)
    entries[#entries + 1] = {path = with_prefix(prefix, part), tensor = p.tensor, rows = ranges}
  end
end

local save_options = arguments.names "shard_bytes"

--- nn.save_hf(folder, model, tokenizer, {shard_bytes=5e9}): writes a model for from_pretrained() of
--- transformers: config.json, model.safetensors (or shards of at most shard_bytes and an index),
--- generation_config.json (as it was loaded, else with the special tokens of the tokenizer), and
--- the files of the tokenizer, if given (a char vocabulary has a format of nnlua's own).
--- Removes other weights from the folder. With several ranks, every rank calls it, and rank 0
--- writes. Errors: the class has no table hugging_face, or the model
--- has parameters or settings that it does not describe.
---     nn.save_hf("out/model", model, nn.train_tokenizer("aaaa", {size = 258}))
function M.save_hf(folder, model, tokenizer, options)
  arguments.need(type(folder) == "string", "save_hf", "the folder", folder, "a text is needed")
  local class = module.is_module(model) and getmetatable(model)
  local described = class and class.hugging_face
  arguments.need(described and type(model.config) == "table", "save_hf", "the model", model,
                 "its class needs a table hugging_face, as in models/gpt2.lua")
  if model.quantized then
    lib.fail "save_hf: the model has weights of 8 bits (nn.quantize_weights); save it before"
  end
  options = arguments.options("save_hf", options, save_options)
  local limit = arguments.whole("save_hf", "shard_bytes", options.shard_bytes or 5e9)
  local config, entries = config_of(model, described, tokenizer), {}
  local generation = generation_config.entries_to_save(model, config, tokenizer)
  for _, p in ipairs(model:parameters()) do add_entries(entries, class, p, model.config) end
  table.sort(entries, function(a, b) return a.path < b.path end)
  if not cluster.is_first() then return safetensors.collect(entries) end
  files.make_folder(folder, "the model's folder")
  safetensors.write_shards(folder, "model", entries, {format = "pt"}, limit)
  if tokenizer then tokenizer:save(folder) end
  files.write(files.join(folder, "config.json"), files.json(config, "") .. "\n")
  local path = files.join(folder, "generation_config.json")
  files.remove(path)
  if generation then files.write(path, files.json(generation, "") .. "\n") end
end

return M
