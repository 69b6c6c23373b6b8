-- Opening a trained model from whatever holds one: a folder of transformers, a checkpoint, or the
-- folder of a run.
local arguments = require "nn.base.arguments"
local checkpoint = require "nn.models.checkpoint"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local hugging_face = require "nn.models.hugging_face"
local lib = require "nn.base.capi"
local registry = require "nn.models.registry"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- The newest good checkpoint of a run's folder, or of its own; nil where `path` is neither.
local function find_checkpoint(path)
  if path == "" then lib.fail "give model=FOLDER" end
  if not files.list(path) then
    lib.fail("there is no folder '%s'; give a run's, a checkpoint's, or one of transformers, as "
             .. "`huggingface-cli download gpt2 --local-dir gpt2` makes it", path)
  end
  if not files.exists(files.join(path, "state.json")) and #checkpoint.list(path) == 0 then
    if files.exists(files.join(path, "config.json")) then return nil end
    lib.fail("'%s' holds no model: neither config.json and model.safetensors nor a checkpoint",
             path)
  end
  local found = checkpoint.find(path, path, function(text)
    io.stderr:write("warning: ", text, "\n")
  end)
  if not found.state.config or not found.state.config.model then
    lib.fail("'%s' does not say what model it is of (no config.model in state.json); a model of "
             .. "your own is read by nn.open_checkpoint(PATH):restore {model = model}", found.path)
  end
  return found
end

-- Class, settings and vocabulary (nil where none is known) of a checkpoint.
local function in_checkpoint(found)
  local state = found.state
  return registry.saved(state.model, found.path), state.config.model,
         state.vocabulary and tokenizers.from_state(state.vocabulary)
end

local function describe(path)
  local found = find_checkpoint(path)
  if found then return in_checkpoint(found) end
  return hugging_face.outline(path)
end

--- sizes(path) -> the settings that the shapes of its parameters depend on, by name, the
--- vocabulary, and the class: of what load_model would give, without reading its weights.
function M.sizes(path)
  local class, settings, words = describe(path)
  local sizes = {}
  for _, name in ipairs(class.dimensions) do sizes[name] = settings[name] end
  return sizes, words, class
end

--- outline(path, tokenizer) -> model, vocabulary: what a plan must know of what load_model would
--- give, without reading its weights: the model has its settings, `config`, and no parameters.
function M.outline(path, tokenizer)
  local class, settings, words = describe(path)
  if tokenizer and tokenizer ~= "" then words = tokenizers.tokenizer(tokenizer) end
  return registry.outline(class, settings), words
end

--- nn.load_model(path, tokenizer) -> model, vocabulary (nil where none is known). `path`: a folder
--- that transformers or nn.save_hf wrote, a checkpoint of a model in models/, or its run's folder,
--- whose newest checkpoint is taken. `tokenizer`: a path for nn.tokenizer, instead of what
--- lies there. The random state stays as it is. Errors: a path that holds no model.
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
      lib.fail("'%s': its settings `model` make no %s: %s", found.path, class.class_name,
               tostring(problem))
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
