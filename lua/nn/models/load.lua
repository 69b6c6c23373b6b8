-- Loads a trained model from a Hugging Face folder, a checkpoint, or the folder of a run.
local arguments = require "nn.base.arguments"
local checkpoint = require "nn.models.checkpoint"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local hf_config = require "nn.models.hf_config"
local hugging_face = require "nn.models.hugging_face"
local lib = require "nn.base.capi"
local registry = require "nn.models.registry"
local states = require "nn.models.state"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- The checkpoint at `path`, or the newest valid one in a run's folder; nil for a Hugging Face
-- folder.
local function find_checkpoint(path)
  if path == "" then lib.fail "give model=FOLDER" end
  if not files.list(path) then
    lib.fail("there is no folder '%s'; give a run, a checkpoint, or a Hugging Face folder, such as "
             .. "that of `huggingface-cli download gpt2 --local-dir gpt2`", path)
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
    lib.fail("'%s' does not name its model (no config.model in state.json); to load a model of "
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

local function describe(path)
  local found = find_checkpoint(path)
  if found then return in_checkpoint(found) end
  return hugging_face.outline(path)
end

--- sizes(path) -> the settings that determine the shapes of the parameters, by name; the
--- vocabulary; the class: of the model at `path`, without reading its weights.
function M.sizes(path)
  local class, settings, words = describe(path)
  local sizes = {}
  for _, name in ipairs(class.dimensions) do sizes[name] = settings[name] end
  return sizes, words, class
end

--- outline(path, tokenizer) -> model, vocabulary: like load_model, but the model has only its
--- settings, `config`, and no parameters. For plans.
function M.outline(path, tokenizer)
  local class, settings, words = describe(path)
  if tokenizer and tokenizer ~= "" then words = tokenizers.tokenizer(tokenizer) end
  return registry.outline(class, settings), words
end

--- nn.load_model(path, tokenizer) -> model, vocabulary (nil if unknown). `path`: a Hugging Face
--- folder (also of nn.save_hf), a checkpoint of a model in models/, or a run's folder, for its
--- newest checkpoint. `tokenizer`: a path for nn.tokenizer, to replace the tokenizer at `path`.
--- Does not change the random state. Errors: a path without a model.
---     nn.save_hf("a-model", model)
---     nn.load_model("a-model"):count() == model:count()  --> true
function M.load_model(path, tokenizer)
  arguments.need(type(path) == "string", "load_model", "the path", path, "a text is needed")
  local found, random = find_checkpoint(path), engine.random_state()
  local model, words
  if found then
    local class, settings
    class, settings, words = in_checkpoint(found)
    local good, problem = pcall(function() model = class(settings) end)
    if not good then
      if lib.is_interrupt(problem) then error(problem, 0) end
      lib.fail("'%s': its settings `model` are not valid for %s: %s", found.path, class.class_name,
               lib.is_error(problem) and problem.message or tostring(problem))
    end
    found:restore_model(model)
  else
    model, words = hugging_face.load_hf(path)
  end
  engine.set_random_state(random)
  if tokenizer and tokenizer ~= "" then words = tokenizers.tokenizer(tokenizer) end
  return model, words
end

return M
