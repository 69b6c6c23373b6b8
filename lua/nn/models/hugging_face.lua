-- Models in the format of Hugging Face's transformers: config.json, model.safetensors (or shards
-- with an index) and the tokenizer's files. A model's class describes its format in a table
-- `hugging_face`:
--
--   types             {model_type = "architecture"}, as in config.json
--   heads             optional: endings of the names of architectures that the model has; by
--                     default that of the name in types, and "Model"
--   variants          optional {model_type = "settings"}: the settings that make a new model one
--                     of this type, for errors
--   prefix            optional prefix of the tensor names in files
--   name(path, settings) -> the tensor's name in files, and whether it is stored transposed; or a
--                     list {{name, rows, first}, ...}: the parameter's rows are `rows` rows of
--                     tensor `name` from row `first` (from 0; default 0) on, then those of the next
--                     entry; nil for an unknown path. Names are without prefix; "/name" has none
--   old_name(name)    optional: the name (without prefix) in older files
--   repeats           {name = name}: tensors that files may have too, which the model does not read
--                     because they must equal another one, such as a tied head
--   unused            Lua patterns for names of tensors that files may have, but the model does
--                     without: masks in older files, heads for other tasks
--   settings          {ours = "theirs"}: settings that are positive whole numbers in config.json
--   optional          {ours = "theirs"}: other settings, if config.json has them
--   fixed             {theirs = value}: values that config.json must have, if it has the entry, for
--                     the model to compute the same function
--   entries           {theirs = kind}: other entries that read uses, and that config.json may have:
--                     "text", "boolean", "number", "whole" (at least 0), "texts", "list" or "any"
--   aliases           optional {theirs = theirs}: other names of entries, which must be equal
--   read(config) -> further settings; or nil and the problem with config.json. config has only
--                     entries named above, with the defaults of transformers where it has none;
--                     others must be harmless, see config_entries.lua
--   write(settings) -> further entries of config.json; model_type, if there are several types;
--                     architectures, if not that of `types`
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local generation_config = require "nn.models.generation_config"
local hf_config = require "nn.models.hf_config"
local hf_weights = require "nn.models.hf_weights"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local safetensors = require "nn.io.safetensors"
local tape = require "nn.core.tape"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- ### Loading

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

local function copy_parameter(p, entry, transposed)
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

--- outline(folder, without_tokenizer) -> the class of the model, its settings from config.json
--- (and the weights, if the folder has them), the tokenizer or nil.
function M.outline(folder, without_tokenizer)
  local class, settings = hf_config.read(folder)
  hf_weights.settle_tie(folder, class, settings)
  return class, settings, not without_tokenizer and tokenizers.in_folder(folder) or nil
end

local load_options = arguments.names "dropout dtype unread tokenizer"

--- nn.load_hf(folder, {dropout=0, dtype="f32", unread="refuse", tokenizer=true}) -> model,
--- tokenizer (nil if the folder has none, or with tokenizer = false).
--- Loads a Hugging Face model (config.json, model.safetensors or shards) of a type that a file in
--- models/ describes, such as models/gpt2.lua for GPT-2. Weights are copied one by one from the
--- mapped file to tiles; transposed ones and other dtypes through a temporary copy. `dtype`: that
--- of the model, f32 or bf16. Where the files have a head of their own, the model has it too, even
--- if tie_word_embeddings is true. What config.json does not state has the default of transformers.
--- model.generation: options for nn.generate as generation_config.json has them: stop_ids (also
--- from config.json); temperature, top_k, top_p and repetition_penalty, by default those of
--- transformers, if do_sample is true; else temperature 0 if it has any of them. Errors: missing
--- files or tensors; a config.json that nnlua's model does not support; a generation_config.json
--- with invalid values; tensors that the model would not read, with unread = "ignore" none; a
--- tokenizer that nnlua does not support.
---     nn.save_hf("another", model)
---     nn.load_hf("another").config.embd  --> 16
function M.load_hf(folder, options)
  arguments.need(type(folder) == "string", "load_hf", "the folder", folder, "a text is needed")
  options = arguments.options("load_hf", options, load_options)
  local unread = options.unread or "refuse"
  arguments.need(unread == "refuse" or unread == "ignore", "load_hf", "unread", unread,
                 "refuse or ignore is needed")
  if not files.list(folder) then lib.deny("there is no folder '%s'", folder) end
  local class, settings, assumed = hf_config.read(folder)
  local weights = hf_weights.open(folder, class, settings, assumed)
  hf_weights.settle_tie(folder, class, settings, weights)
  for _, name in ipairs {"dropout", "dtype"} do
    if options[name] ~= nil then settings[name] = options[name] end
  end
  weights:check_shapes(settings)
  local tokenizer = options.tokenizer ~= false and tokenizers.in_folder(folder) or nil
  local model, found = class(settings), {}
  generation_config.attach(model, folder)
  for i, p in ipairs(model:parameters()) do
    found[i] = {p, weights:parameter(p.path, p.tensor.shape, model.config)}
  end
  if unread == "refuse" then weights:check_all_read() end
  tape.no_grad(function()
    for _, pair in ipairs(found) do copy_parameter(unpack(pair)) end
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
  local name, transposed = hf_weights.name_in_files(class, p.path, settings)
  if type(name) == "string" then
    entries[#entries + 1] = {path = hf_weights.full_name(prefix, name), tensor = p.tensor,
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
    entries[#entries + 1] = {path = hf_weights.full_name(prefix, part), tensor = p.tensor,
                             rows = ranges}
  end
end

-- Writes all files of save_hf() into the folder.
local function write_files(folder, entries, limit, config, generation, tokenizer)
  safetensors.write_shards(folder, "model", entries, {format = "pt"}, limit)
  if tokenizer then tokenizer:save(folder) end
  files.write_in(folder, "config.json", files.json(config, "") .. "\n")
  files.remove(files.join(folder, "generation_config.json"))
  if generation then files.write_in(folder, "generation_config.json", generation) end
end

local save_options = arguments.names "shard_bytes"

--- nn.save_hf(folder, model, tokenizer, {shard_bytes=5e9}): writes a model for from_pretrained() of
--- transformers: config.json, model.safetensors (or shards of at most shard_bytes and an index),
--- generation_config.json (as it was loaded, else with the special tokens of the tokenizer), and
--- the files of the tokenizer, if given (a char vocabulary has a format of nnlua's own).
--- Removes other weights from the folder. If it fails or is interrupted, it removes a folder that
--- it created. With several ranks, every rank calls it, and rank 0 writes. Errors: the class has no
--- table hugging_face, or the model has parameters or settings that it does not describe.
---     nn.save_hf("out/model", model, nn.train_tokenizer("aaaa", {size = 258}))
function M.save_hf(folder, model, tokenizer, options)
  arguments.need(type(folder) == "string", "save_hf", "the folder", folder, "a text is needed")
  local class = module.is_module(model) and getmetatable(model)
  local described = class and class.hugging_face
  arguments.need(described and type(model.config) == "table", "save_hf", "the model", model,
                 "its class needs a table hugging_face, as in models/gpt2.lua")
  if model.quantized then
    lib.deny "save_hf: the model has weights of 8 bits (nn.quantize_weights); save it before"
  end
  options = arguments.options("save_hf", options, save_options)
  local limit = arguments.whole("save_hf", "shard_bytes", options.shard_bytes or 5e9)
  local config, entries = config_of(model, described, tokenizer), {}
  local generation = generation_config.text_to_save(model, config, tokenizer)
  for _, p in ipairs(model:parameters()) do add_entries(entries, class, p, model.config) end
  table.sort(entries, function(a, b) return a.path < b.path end)
  if not cluster.is_first() then return safetensors.collect(entries) end
  local made = files.make_folder(folder, "the model's folder")
  lib.guarded(function() if made[1] then files.remove(made[1]) end end, write_files, folder,
              entries, limit, config, generation, tokenizer)
end

return M
