-- Opening a trained model from whatever holds one: a folder of transformers, a checkpoint, or the
-- folder of a run.
local checkpoint = require "nn.checkpoint"
local files = require "nn.files"
local lib = require "nn.ffi"
local vocabulary = require "nn.vocabulary"

local M = {}

local function from_checkpoint(found)
  local state = found.state
  if not state.config or not state.config.model then
    lib.fail("'%s' does not say what model it is of (no config.model in state.json)", found.path)
  end
  local good, model = pcall(require "models.gpt2", state.config.model)
  if not good then
    lib.fail("'%s': its settings `model` make no GPT-2: %s", found.path, tostring(model))
  end
  found:restore_model(model)
  return model, state.vocabulary and vocabulary.from_state(state.vocabulary)
end

--- nn.load_model(path, tokenizer) -> model, vocabulary (nil where none is known). `path`: a folder
--- that transformers or nn.save_hf wrote, a checkpoint of recipes/gpt2_train.lua, or its run's
--- folder, whose newest checkpoint is taken. `tokenizer`: a path for nn.tokenizer, instead of what
--- lies there. The random state stays as it is. Errors: a path that holds no model.
---     nn.save_hf("a-model", model)
---     nn.load_model("a-model"):count() == model:count()  --> true
function M.load_model(path, tokenizer)
  if path == "" then lib.fail "give model=FOLDER" end
  if not files.list(path) then lib.fail("there is no folder '%s'", path) end
  local nn = require "nn"
  local random = nn.random_state()
  local results
  if files.exists(files.join(path, "state.json")) or #checkpoint.list(path) > 0 then
    results = {from_checkpoint(checkpoint.find(path, path, function(text)
      io.stderr:write("warning: ", text, "\n")
    end))}
  elseif files.exists(files.join(path, "config.json")) then
    results = {nn.load_hf(path)}
  else
    lib.fail("'%s' holds no model: neither config.json and model.safetensors nor a checkpoint",
             path)
  end
  nn.set_random_state(random)
  if tokenizer and tokenizer ~= "" then results[2] = nn.tokenizer(tokenizer) end
  return results[1], results[2]
end

return M
