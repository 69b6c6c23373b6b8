-- The schema of state.json in a checkpoint, and the check of a model's settings against the file
-- with its parameters. A checkpoint may come from anywhere, and a forged one must neither raise an
-- internal error nor take all memory.
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local registry = require "nn.models.registry"
local safetensors = require "nn.io.safetensors"
local schema = require "nn.io.schema"
local sorted_keys = require("nn.base.tables").sorted_keys

local M = {}
M.FORMAT = 1

local names = {["model.safetensors"] = true, ["optimizer.safetensors"] = true}
local file = schema.fields {bytes = schema.whole(), crc32 = schema.whole(0, 2 ^ 32 - 1)}

-- What every checkpoint has. `config`, `data`, `optimizer` and `vocabulary` depend on the script
-- that saved it; those who restore them check them.
local check = schema.fields {
  step = schema.whole(), files = schema.map(names, file), model = schema.optional(schema.text),
  model_file = schema.optional(schema.fields {sha256 = schema.text,
                                              path = schema.optional(schema.text)}),
  random = schema.fields {seed = schema.whole(), counter = schema.whole()},
  best = schema.optional(schema.fields {step = schema.whole(),
                                        val_loss = schema.optional(schema.number)}),
}

--- parse(text) -> the state in a text of JSON; or nil and the problem.
function M.parse(text)
  local state = files.parse_json(text)
  if type(state) ~= "table" or state.format ~= M.FORMAT then
    return nil, "state.json was written by an incompatible version of nnlua"
  end
  local problem = check(schema.without_null(state))
  if problem then return nil, "state.json is not valid: " .. problem end
  for name in pairs(names) do
    if not state.files[name] and (name == "model.safetensors" or state.optimizer) then
      return nil, ("state.json is not valid: files has no %s"):format(name)
    end
  end
  if state.best and not state.best.val_loss then state.best = nil end
  return state
end

-- The problem with a dimension of the model, or nil. A missing one has a default.
local function wrong_dimension(class, settings)
  for _, name in ipairs(class.dimensions or {}) do
    local problem = schema.optional(schema.whole(1))(settings[name], name)
    if problem then return problem end
  end
end

-- How the tensors in model.safetensors differ from those of the settings, or nil. Without shapes,
-- the settings may also be incomplete.
local function mismatch(class, settings, weights, with_shapes)
  if not class.shapes then return nil end
  local shapes, problem = registry.shapes(class, settings)
  if not shapes then return with_shapes and problem or nil end
  for _, name in ipairs(sorted_keys(shapes)) do
    local shape = shapes[name]
    local entry = weights.by_name[name]
    if not entry then
      return ("they imply a tensor '%s', which model.safetensors lacks"):format(name)
    end
    local given, implied = table.concat(entry.shape, ","), table.concat(shape, ",")
    if with_shapes and given ~= implied then
      return ("they imply (%s) for '%s', which is (%s) in model.safetensors"):format(
        implied, name, given)
    end
  end
end

local function refuse(class, folder, problem)
  lib.deny("'%s': its settings `model` are not valid for %s: %s", folder, class.class_name, problem)
end

--- check_shapes(class, settings, folder): raises an error unless the checkpoint in `folder` has the
--- parameters that the settings of its model imply (Class.shapes), with their shapes, so that the
--- model is not larger than the file.
function M.check_shapes(class, settings, folder)
  if type(settings) ~= "table" or settings[1] ~= nil then
    refuse(class, folder, "they are not an object")
  end
  local problem = wrong_dimension(class, settings)
    or mismatch(class, settings, safetensors.open(files.join(folder, "model.safetensors")), true)
  if problem then refuse(class, folder, problem) end
end

--- check_names(class, settings, folder): the same for settings that a resumed run inherits, whose
--- meaning depends on its script: checks only that the file has tensors of these names. The code
--- that opens the checkpoint reports an unreadable file.
function M.check_names(class, settings, folder)
  if type(settings) ~= "table" or wrong_dimension(class, settings) then return end
  local readable, weights = lib.protected(safetensors.open, files.join(folder, "model.safetensors"))
  if not readable then return end
  local problem = mismatch(class, settings, weights, false)
  if problem then refuse(class, folder, problem) end
end

return M
