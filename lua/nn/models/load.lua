-- Loads a trained model from a Hugging Face folder, a checkpoint, or the folder of a run.
local arguments = require "nn.base.arguments"
local checkpoint = require "nn.models.checkpoint"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local generation_config = require "nn.models.generation_config"
local hf_config = require "nn.models.hf_config"
local hugging_face = require "nn.models.hugging_face"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local quantize = require "nn.models.quantize"
local registry = require "nn.models.registry"
local states = require "nn.models.state"
local tape = require "nn.core.tape"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- The checkpoint at `path`, or the newest valid one in a run's folder; nil for a Hugging Face
-- folder.
local function find_checkpoint(path)
  if path == "" then lib.deny "give model=FOLDER" end
  if not files.list(path) then
    lib.deny("there is no folder '%s'; give a run, a checkpoint, or a Hugging Face folder, such as "
             .. "that of `hf download gpt2 --local-dir gpt2`", path)
  end
  if not files.exists(files.join(path, "state.json")) and #checkpoint.list(path) == 0 then
    if files.exists(files.join(path, "config.json")) then return nil end
    hf_config.refuse_folder(path, "neither config.json and model.safetensors nor a checkpoint")
  end
  local found = checkpoint.find(path, path, function(text)
    io.stderr:write("warning: ", text, "\n")
  end)
  local config = found.state.config
  if type(config) ~= "table" or config.model == nil then
    lib.deny("'%s' does not name its model (no config.model in state.json); to load a model of "
             .. "your own, use nn.open_checkpoint(PATH):restore {model = model}", found.path)
  end
  return found
end

-- The class, settings and vocabulary (nil if unknown) of the model in a checkpoint.
local function in_checkpoint(found)
  local class, settings = registry.saved(found.state.model, found.path), found.state.config.model
  states.check_shapes(class, settings, found.path)
  return class, settings, found:vocabulary()
end

-- tokenizer: a path that replaces the tokenizer of a Hugging Face folder, or nil or "".
local function describe(path, tokenizer)
  local found = find_checkpoint(path)
  if found then return in_checkpoint(found) end
  local class, settings, words = hugging_face.outline(path, (tokenizer or "") ~= "")
  return class, settings, words, path
end

--- sizes(path) -> the settings that determine the shapes of the parameters, by name; the
--- vocabulary; the class: of the model at `path`, without reading its weights.
function M.sizes(path)
  local class, settings, words = describe(path)
  local sizes = {}
  for _, name in ipairs(class.dimensions) do sizes[name] = settings[name] end
  return sizes, words, class
end

local load_options = arguments.names "weights"
local dtypes = {f32 = "f32", bf16 = "bf16", int8 = "f32"}       -- of a model, by `weights`

-- The option `weights` of load_model, or nil.
local function weights_in(who, options)
  local weights = arguments.options(who, options, load_options).weights
  arguments.need(weights == nil or dtypes[weights], who, "weights", weights,
                 "f32, bf16 or int8 is needed")
  return weights
end

-- A copy of the settings with this dtype, or the settings if it is nil.
local function with_dtype(settings, dtype)
  if not dtype then return settings end
  local out = {}
  for name, value in pairs(settings) do out[name] = value end
  out.dtype = dtype
  return out
end

--- outline(path, tokenizer, {weights}) -> model, vocabulary: like load_model, but the model has
--- only its settings, `config`, `quantized` and `generation`, and no parameters. For plans.
function M.outline(path, tokenizer, options)
  local weights = weights_in("outline", options)
  local class, settings, words, folder = describe(path, tokenizer)
  if tokenizer and tokenizer ~= "" then words = tokenizers.tokenizer(tokenizer) end
  local model = registry.outline(class, with_dtype(settings, dtypes[weights]))
  model.quantized = weights == "int8"
  if folder then generation_config.attach(model, folder) end
  return model, words
end

-- A new model with these settings, which are those of the checkpoint, except for the dtype.
local function new_model(class, settings, path)
  local good, result = lib.attempt(class, settings)
  if good then return result end
  lib.deny("'%s': its settings `model` are not valid for %s: %s", path, class.class_name,
           lib.is_error(result) and result.message or tostring(result))
end

-- The model of a checkpoint, in `dtype`, or in its own if that is nil; its vocabulary.
local function restored(found, dtype)
  local change = registry.change_of_file(found.state)
  if change then io.stderr:write(("warning: '%s': %s\n"):format(found.path, change)) end
  local class, settings, words = in_checkpoint(found)
  local model = new_model(class, settings, found.path)
  found:restore_model(model)
  if not dtype or model.config.dtype == dtype then return model, words end
  local converted = new_model(class, with_dtype(settings, dtype), found.path)
  local own = model:parameters()
  tape.no_grad(function()
    for i, p in ipairs(converted:parameters()) do
      module.copy(p.tensor, own[i].tensor)
      own[i].tensor:release()
    end
  end)
  return converted, words
end

--- nn.load_model(path, tokenizer, {weights}) -> model, vocabulary (nil if unknown). `path`: a
--- Hugging Face folder (also of nn.save_hf), a checkpoint of a model in models/, or a run's folder,
--- for its newest checkpoint. `tokenizer`: a path for nn.tokenizer, to replace the tokenizer at
--- `path`. weights: f32 or bf16, the dtype of the model, or int8, for nn.quantize_weights. By
--- default a checkpoint keeps its dtype and a Hugging Face model is f32. Does not change the random
--- state. Errors: a path without a model.
---     nn.save_hf("a-model", model)
---     nn.load_model("a-model"):count() == model:count()  --> true
---     nn.load_model("a-model", nil, {weights = "bf16"}).config.dtype  --> "bf16"
function M.load_model(path, tokenizer, options)
  arguments.need(type(path) == "string", "load_model", "the path", path, "a text is needed")
  local weights = weights_in("load_model", options)
  local found, random = find_checkpoint(path), engine.random_state()
  local model, words
  if found then
    model, words = restored(found, dtypes[weights])
  else
    model, words = hugging_face.load_hf(path, {dtype = dtypes[weights],
                                               tokenizer = (tokenizer or "") == ""})
  end
  if weights == "int8" then quantize.quantize_weights(model) end
  engine.set_random_state(random)
  if tokenizer and tokenizer ~= "" then words = tokenizers.tokenizer(tokenizer) end
  return model, words
end

return M
