-- GPT-2 as Hugging Face's transformers saves it: config.json, model.safetensors (or shards with an
-- index) and the tokenizer's files. Its Conv1D keeps weights as (in, out), ours are (out, in).
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local safetensors = require "nn.io.safetensors"
local tape = require "nn.core.tape"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- ### Names

local outside = {["tok.weight"] = "wte.weight", ["pos.weight"] = "wpe.weight",
                 ["norm.weight"] = "ln_f.weight", ["norm.bias"] = "ln_f.bias"}
local inside = {norm1 = "ln_1", norm2 = "ln_2", ["attn.qkv"] = "attn.c_attn",
                ["attn.proj"] = "attn.c_proj", ["mlp.up"] = "mlp.c_fc", ["mlp.down"] = "mlp.c_proj"}

-- Their name (without a prefix) of our parameter, and whether the matrix lies transposed there.
local function their_name(path)
  if outside[path] then return outside[path], false end
  local block, layer, kind = path:match "^blocks%.(%d+)%.(.+)%.(%w+)$"
  if not inside[layer] then lib.fail("'%s' is no parameter of transformers' GPT-2", path) end
  return ("h.%d.%s.%s"):format(block - 1, inside[layer], kind),
         kind == "weight" and layer:find "%." ~= nil
end

-- ### Loading

-- What config.json must say for models/gpt2.lua to be the same function.
local fixed = {model_type = "gpt2", activation_function = "gelu_new", layer_norm_epsilon = 1e-5,
               scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false,
               reorder_and_upcast_attn = false, add_cross_attention = false,
               tie_word_embeddings = true}

local function read_config(folder)
  local path = files.join(folder, "config.json")
  local config = json.read(path)
  for name, value in pairs(fixed) do
    if config[name] ~= nil and config[name] ~= value then
      lib.fail("%s: %s is %s; nnlua's GPT-2 has %s", path, name, tostring(config[name]),
               tostring(value))
    end
  end
  local inner = type(config.n_inner) == "number" and config.n_inner
  for _, name in ipairs {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"} do
    local value = config[name]
    if type(value) ~= "number" or value < 1 or value % 1 ~= 0 then
      lib.fail("%s: %s is %s; a whole number from 1 is needed", path, name, tostring(value))
    end
  end
  if inner and inner ~= 4 * config.n_embd then
    lib.fail("%s: n_inner is %s; nnlua's GPT-2 has 4 n_embd = %.0f", path, tostring(inner),
             4 * config.n_embd)
  end
  if config.n_embd % config.n_head ~= 0 then
    lib.fail("%s: n_embd = %.0f does not divide into n_head = %.0f", path, config.n_embd,
             config.n_head)
  end
  return config
end

-- Entries by name of one model.safetensors (which transformers prefers, too) or of an index.
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

local function find(by_name, name, folder)
  return by_name["transformer." .. name] or by_name[name]
    or lib.fail("'%s' has no tensor '%s' (nor with the prefix 'transformer.')", folder, name)
end

-- Before a model of that size is made: the files must have its last layer and its embeddings.
local function check_size(config, by_name, folder)
  find(by_name, ("h.%.0f.ln_1.weight"):format(config.n_layer - 1), folder)
  local sizes = {["wte.weight"] = config.vocab_size, ["wpe.weight"] = config.n_positions}
  for name, rows in pairs(sizes) do
    local entry = find(by_name, name, folder)
    if #entry.shape ~= 2 or entry.shape[1] ~= rows or entry.shape[2] ~= config.n_embd then
      lib.fail("%s: '%s' is (%s), config.json makes it (%.0f,%.0f)", entry.file.path, entry.name,
               table.concat(entry.shape, ","), rows, config.n_embd)
    end
  end
end

local function copy_parameter(p, by_name, folder)
  local name, transposed = their_name(p.path)
  local entry = find(by_name, name, folder)
  if entry.dtype == "F32" and not transposed and p.tensor.dtype == "f32" then
    return entry.file:copy_into(entry.name, p.tensor)       -- from the mapped file into the tiles
  end
  local here, there = p.tensor.shape, table.concat(entry.shape, ",")
  local wanted = table.concat(transposed and {here[2], here[1]} or here, ",")
  if there ~= wanted then
    lib.fail("%s: '%s' is (%s), config.json makes it (%s)", entry.file.path, entry.name, there,
             wanted)
  end
  local source = entry.file:tensor(entry.name)
  p.tensor:copy_(source, {transposed = transposed})
  source:release()
  engine.sync()                                    -- so that only one such copy is there at a time
end

--- sizes(folder) -> {layers=, heads=, embd=, context=, vocab=} as config.json has them, and the
--- tokenizer (nil where there are no tokenizer files).
function M.sizes(folder)
  local config, tokenizer = read_config(folder), nil
  for _, name in ipairs {"tokenizer.json", "vocab.json", "vocabulary.json"} do
    if not tokenizer and files.exists(files.join(folder, name)) then
      tokenizer = tokenizers.tokenizer(folder)
    end
  end
  return {layers = config.n_layer, heads = config.n_head, embd = config.n_embd,
          context = config.n_positions, vocab = config.vocab_size}, tokenizer
end

local load_options = arguments.names "dropout dtype"

--- nn.load_hf(folder, {dropout=0, dtype="f32"}) -> model, tokenizer (nil where there are no files
--- of one). A GPT-2 of transformers: config.json, model.safetensors or shards, with or without the
--- prefix "transformer.". Weights go from the mapped file into tiles one by one; those that are
--- transposed there, or of another dtype, through a copy of one at a time. `dtype` is that of the
--- model, f32 or bf16. Errors: what is missing, or is not GPT-2 as models/gpt2.lua computes it, by
--- name.
---     nn.save_hf("another", model)
---     nn.load_hf("another").config.embd  --> 16
function M.load_hf(folder, options)
  local GPT2 = require "models.gpt2"
  arguments.need(type(folder) == "string", "load_hf", "the folder", folder, "a text is needed")
  options = arguments.options("load_hf", options, load_options)
  if not files.list(folder) then lib.fail("there is no folder '%s'", folder) end
  local config = read_config(folder)
  local by_name = open_weights(folder)
  check_size(config, by_name, folder)
  local sizes, tokenizer = M.sizes(folder)
  sizes.dropout, sizes.dtype = options.dropout, options.dtype
  local model = GPT2(sizes)
  tape.no_grad(function()
    for _, p in ipairs(model:parameters()) do copy_parameter(p, by_name, folder) end
  end)
  return model, tokenizer
end

-- ### Saving

local function config_of(model, tokenizer)
  local c = model.config
  local last = tokenizer and tokenizer.special and tokenizer.special["<|endoftext|>"]
  local config = {
    architectures = {"GPT2LMHeadModel"}, n_layer = c.layers, n_head = c.heads, n_embd = c.embd,
    n_positions = c.context, vocab_size = c.vocab, bos_token_id = last, eos_token_id = last,
    dtype = c.dtype == "bf16" and "bfloat16" or "float32", attn_pdrop = c.dropout,
    embd_pdrop = c.dropout, resid_pdrop = c.dropout}
  for name, value in pairs(fixed) do config[name] = value end
  return config
end

local save_options = arguments.names "shard_bytes"

--- nn.save_hf(folder, model, tokenizer, {shard_bytes=5e9}): writes a GPT-2 as transformers'
--- from_pretrained loads it: config.json, model.safetensors (or shards of at most shard_bytes with
--- their index), and the tokenizer's files if it is given (those of a char vocabulary are nnlua's
--- own). Other weights that lay there go. Errors: a model with other parameters than GPT-2's.
---     nn.save_hf("out/model", model, nn.train_tokenizer("aaaa", {size = 258}))
function M.save_hf(folder, model, tokenizer, options)
  arguments.need(type(folder) == "string", "save_hf", "the folder", folder, "a text is needed")
  arguments.need(module.is_module(model) and type(model.config) == "table", "save_hf", "the model",
                 model, "a GPT2 of models/gpt2.lua is needed")
  options = arguments.options("save_hf", options, save_options)
  local limit = arguments.whole("save_hf", "shard_bytes", options.shard_bytes or 5e9)
  files.make_folder(folder, "the model's folder")
  local entries = {}
  for i, p in ipairs(model:parameters()) do
    local name, transposed = their_name(p.path)
    entries[i] = {path = "transformer." .. name, tensor = p.tensor, transposed = transposed}
  end
  table.sort(entries, function(a, b) return a.path < b.path end)
  safetensors.write_shards(folder, "model", entries, {format = "pt"}, limit)
  if tokenizer then tokenizer:save(folder) end
  local config = files.json(config_of(model, tokenizer), "")
  files.write(files.join(folder, "config.json"), config .. "\n")
end

return M
