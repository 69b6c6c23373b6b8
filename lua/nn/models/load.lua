-- Opening a trained model from whatever holds one: a folder of transformers, a checkpoint, or the
-- folder of a run.
local arguments = require "nn.base.arguments"
local checkpoint = require "nn.models.checkpoint"
local compile = require "nn.core.compile"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local hugging_face = require "nn.models.hugging_face"
local lib = require "nn.base.capi"
local tokenizers = require "nn.text.tokenizer"

local M = {}

-- The newest good checkpoint of a run's folder, or of its own; nil where `path` is neither.
local function find_checkpoint(path)
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

local function vocabulary_of(found)
  return found.state.vocabulary and tokenizers.from_state(found.state.vocabulary)
end

--- sizes(path) -> {layers=, heads=, embd=, context=, vocab=}, vocabulary: of what load_model would
--- give, without reading its weights.
function M.sizes(path)
  local found = find_checkpoint(path)
  if not found then return require("nn.models.hugging_face").sizes(path) end
  local model, out = found.state.config.model, {}
  for _, name in ipairs {"layers", "heads", "embd", "context", "vocab"} do
    out[name] = model[name]
  end
  return out, vocabulary_of(found)
end

--- outline(path, tokenizer) -> {config=}, vocabulary: what a plan must know of the model that
--- load_model would give, without reading its weights.
function M.outline(path, tokenizer)
  if path == "" then lib.fail "give model=FOLDER" end
  local found = find_checkpoint(path)
  local settings, words
  if found then
    settings, words = found.state.config.model, vocabulary_of(found)
  else
    settings, words = require("nn.models.hugging_face").sizes(path)
  end
  local out = {}
  compile.plan(function() out.config = require "models.gpt2"(settings).config end)
  if tokenizer and tokenizer ~= "" then words = tokenizers.tokenizer(tokenizer) end
  return out, words
end

local function from_checkpoint(found)
  local state = found.state
  local good, model = pcall(require "models.gpt2", state.config.model)
  if not good then
    lib.fail("'%s': its settings `model` make no GPT-2: %s", found.path, tostring(model))
  end
  found:restore_model(model)
  return model, vocabulary_of(found)
end

--- nn.load_model(path, tokenizer) -> model, vocabulary (nil where none is known). `path`: a folder
--- that transformers or nn.save_hf wrote, a checkpoint of recipes/gpt2_train.lua, or its run's
--- folder, whose newest checkpoint is taken. `tokenizer`: a path for nn.tokenizer, instead of what
--- lies there. The random state stays as it is. Errors: a path that holds no model.
---     nn.save_hf("a-model", model)
---     nn.load_model("a-model"):count() == model:count()  --> true
function M.load_model(path, tokenizer)
  arguments.need(type(path) == "string", "load_model", "the path", path, "a text is needed")
  if path == "" then lib.fail "give model=FOLDER" end
  local found = find_checkpoint(path)
  local random = engine.random_state()
  local results = {}
  if found then
    results[1], results[2] = from_checkpoint(found)
  else
    results[1], results[2] = hugging_face.load_hf(path)
  end
  engine.set_random_state(random)
  if tokenizer and tokenizer ~= "" then results[2] = tokenizers.tokenizer(tokenizer) end
  return results[1], results[2]
end

return M
