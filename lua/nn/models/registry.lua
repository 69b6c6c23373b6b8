-- Models by name. A model is a file models/NAME.lua, in nnlua's folder or wherever else Lua finds
-- modules, that returns a class of nn.module. The library requires no model; what it uses of one:
--
--   Class(settings)          a model; its `config` has all of its settings (`context` and `vocab`
--                            among them) and makes the same model
--   model(ids), model(ids, targets, {scale})   logits (B,T,V); the mean cross-entropy times scale
--   Class.dimensions         names of the settings that the shapes of its parameters depend on
--   Class.hugging_face       how transformers saves it (hugging_face.lua says what is in there)
--   Class.example            code that makes a small one, for examples in docs
--   model:flops_per_token(T) forward and backward
--   model:caches(batch), model:next(ids, caches, start, last)    for generating a token at a time
--
-- All but the first two lines may be missing; then what needs them says so or does without.
local compile = require "nn.core.compile"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"

local M = {}
local FIRST = "gpt2"      -- the only one when checkpoints and config.json did not name theirs

-- Names of the models that there are, nnlua's own first, and the same as keys.
local function names()
  local list, known = {}, {}
  for folder in package.path:gmatch "([^;]*)%?%.lua" do
    for _, file in ipairs(files.list(folder .. "models") or {}) do
      local name = file:match "^([%w_]+)%.lua$"
      if name and not known[name] then list[#list + 1], known[name] = name, true end
    end
  end
  return list, known
end

--- find(name) -> the class of models/NAME.lua. Errors: a model that there is not, with those that
--- there are.
function M.find(name)
  local module, _, known = "models." .. tostring(name), names()
  if not package.loaded[module] and not known[name] then
    lib.fail("there is no model '%s' in models/%s", tostring(name), suggest.choices(name, known))
  end
  return require(module)
end

--- name_of(model) -> the name that find() knows its class by; nil: it is in no models/NAME.lua.
function M.name_of(model)
  for module, class in pairs(package.loaded) do
    if class == getmetatable(model) then return module:match "^models%.(.*)$" end
  end
end

--- saved(name) -> the class that a checkpoint names. Errors: as find(), and "", which is none.
function M.saved(name, path)
  if name == "" then
    lib.fail("'%s' holds a model that is in no models/NAME.lua; nn.open_checkpoint(PATH):restore "
             .. "{model = model} reads it", path)
  end
  return M.find(name or FIRST)
end

--- of_type(model_type, path) -> the class that says it is transformers' model of that type; one
--- whose file has that name is asked first. `path`: the config.json. Errors: a type that none has.
function M.of_type(model_type, path)
  if model_type == nil then return M.find(FIRST) end
  local list, known = names()
  if known[model_type] then table.insert(list, 1, model_type) end
  local types = {}
  for _, name in ipairs(list) do
    local good, class = pcall(require, "models." .. name)
    if not good and name == model_type then error(class, 0) end
    local described = good and type(class) == "table" and class.hugging_face
    if described and described.model_type == model_type then return class end
    if described then types[described.model_type] = true end
  end
  lib.fail("%s: model_type is '%s', which no model in models/ is%s", path, tostring(model_type),
           suggest.choices(model_type, types))
end

--- outline(class, settings) -> such a model without its parameters, for plans: `config` has all its
--- settings. Errors: those of the class.
function M.outline(class, settings)
  local config
  compile.plan(function() config = class(settings).config end)
  return setmetatable({config = config}, class)
end

return M
