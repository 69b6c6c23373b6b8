-- Models by name. A model is a file models/NAME.lua that returns a class of nn.module. That of the
-- user, where lua/start.lua finds it, comes before nnlua's own. The library itself requires no
-- model. The interface of a model:
--
--   Class(settings)          a model; its `config` has all of its settings (also `context` and
--                            `vocab`), so that Class(model.config) is a model of the same shape
--   model(ids), model(ids, targets, {scale})   logits (B,T,V); scale * mean cross-entropy
--   Class.kind               "decoder", "encoder" or "encoder_decoder"; nil counts as the first
--   Class.dimensions         names of the settings that determine the shapes of its parameters
--   Class.shapes(settings)   {path = shape} of some parameters, including one of the last layer.
--                            Loading checks them in the file before it creates a model
--   Class.hugging_face       its format in transformers, see hugging_face.lua
--   Class.example            code that creates a small model, for examples in docs
--   Class.requirements(settings, tokens)   {parameters=, tiles=, state=, bytes=}, found by
--                            arithmetic, for run:plan
--   model:flops_per_token(T) FLOPs, forward and backward; of an "encoder_decoder" (T, S), for
--                            texts of T tokens with answers of S
--   model:caches(batch, tokens), model:next(ids, caches, start, last, behind)    generation with
--                            caches for sequences of up to `tokens` tokens; an "encoder_decoder"
--                            also has model:read(ids, mask): its result and the mask follow `last`
--
-- Only the first two lines are required.
local arguments = require "nn.base.arguments"
local compile = require "nn.core.compile"
local families = require "nn.models.families"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local script = require "nn.io.script"
local sha256 = require "nn.io.sha256"
local suggest = require "nn.base.suggest"

local M = {}
local FIRST = "gpt2"      -- the model of old files that do not name theirs

-- The names of all models, those that nnlua has first, as a list and as a set.
local function names()
  local list, known = {}, {}
  for folder in (host.root .. "/?.lua;" .. package.path):gmatch "([^;]*)%?%.lua" do
    for _, file in ipairs(files.list(folder .. "models") or {}) do
      local name = file:match "^([%w_]+)%.lua$"
      if name and not known[name] then list[#list + 1], known[name] = name, true end
    end
  end
  return list, known
end

-- What models/NAME.lua returns. Errors: a file that is not Lua, with the line; those of the file.
local function required(name)
  local module = "models." .. name
  local path = not package.loaded[module] and host.find_module(module)
  if path then
    local chunk, problem = script.load(path)
    if not chunk then lib.deny("%s", problem) end
  end
  return require(module)
end

--- known(name) -> the class of models/NAME.lua, or nil.
function M.known(name)
  local module, _, known = "models." .. name, names()
  local class = (package.loaded[module] or known[name]) and required(name)
  if not class or type(class) == "table" and class.class_name then return class end
  lib.deny("%s returns %s; end it with `return CLASS`, a class of nn.module",
           host.find_module(module), type(class) ~= "table" and "no class"
           or "a table that is no class of nn.module")
end

-- "; ./models/NAME/init.lua is not looked for: ..." if there is that file, or nil.
local function advice_on_folder(name)
  for folder in package.path:gmatch "([^;]*)%?%.lua" do
    local path = ("%smodels/%s/init.lua"):format(folder, name)
    if name:find "^[%w_]+$" and files.exists(path) then
      return ("; %s is not looked for: make it models/%s.lua"):format(path, name)
    end
  end
end

-- What to write instead of a name that is a model_type of transformers: "; it is a type of ...".
local function advice_on_type(name, list)
  for _, other in ipairs(list) do
    local good, class = lib.attempt(required, other)
    local described = good and type(class) == "table" and class.hugging_face
    if described and described.types[name] then
      local variant = (described.variants or {})[name]
      return ("; it is a kind of %s: give model=%s%s"):format(class.class_name, other,
                                                            variant and " " .. variant or "")
    end
  end
end

--- find(name, path) -> the class of models/NAME.lua. Errors: an unknown model, with the known ones;
--- `path`: the checkpoint that names it, if any.
function M.find(name, path)
  local list, known = names()
  local class = M.known(name)
  if class then return class end
  lib.deny("%sunknown model '%s' in models/%s", path and ("'%s': "):format(path) or "", name,
           advice_on_folder(name) or advice_on_type(name, list) or suggest.choices(name, known))
end

--- name_of(model) -> the name of its class for find(); nil if the class is not in models/.
function M.name_of(model)
  for module, class in pairs(package.loaded) do
    if class == getmetatable(model) then return module:match "^models%.(.*)$" end
  end
end

--- file_of(name) -> {path=, sha256=} of the file models/NAME.lua; nil if there is none. path: nil
--- for a file of nnlua's own, wherever a copy of it is.
function M.file_of(name)
  local path = name and host.find_module("models." .. name)
  if not path then return nil end
  local text, own = files.read(path), files.join(host.root, ("models/%s.lua"):format(name))
  local is_own = files.exists(own) and files.read(own) == text
  return {path = not is_own and files.real_path(path) or nil, sha256 = sha256(text)}
end

--- described(file, name) -> "/home/me/models/gpt2.lua (sha256 ...)", of a result of file_of(name).
function M.described(file, name)
  return ("%s (sha256 %s)"):format(file.path or ("nnlua's own models/%s.lua"):format(name),
                                   file.sha256)
end

--- change_of_file(state) -> what to say if models/NAME.lua is not the file with which the
--- checkpoint with this state was made, else nil.
function M.change_of_file(state)
  local before, now = state.model_file, M.file_of(state.model)
  if not before or not now or before.sha256 == now.sha256 then return nil end
  return ("the model of the checkpoint was defined by %s; now %s defines it"):format(
    M.described(before, state.model), M.described(now, state.model))
end

--- saved(name, path) -> the class named in the checkpoint `path`. Errors: as find(); the name "".
function M.saved(name, path)
  if name == "" then
    lib.deny("'%s' contains a model of no file models/NAME.lua; load it with "
             .. "nn.open_checkpoint(PATH):restore {model = model}", path)
  end
  return M.find(name or FIRST, path)
end

-- " (T5ForConditionalGeneration)", the architecture that config.json names, or "".
local function architecture_of(config)
  local first = type(config.architectures) == "table" and config.architectures[1]
  return type(first) == "string" and (" (%s)"):format(first) or ""
end

-- Raises the error for a type that no model has: what it is, and how it differs.
local function refuse_type(config, path, types)
  local kind = config.model_type
  if type(kind) ~= "string" then
    lib.deny("%s: model_type is %s; a text is needed", path, arguments.describe(kind))
  end
  local difference = families.difference(kind)
  lib.deny("%s: model_type is '%s'%s, which no model in models/ has%s%s", path, kind,
           architecture_of(config), difference and ": " .. difference or "",
           suggest.choices(difference and "" or kind, types))
end

--- of_type(config, path) -> the class with the model_type of this config.json in its table
--- hugging_face; a file of that name is tried first. `path`: that of config.json, for errors. Old
--- ones of GPT-2 have no model_type. Errors: an unknown type.
function M.of_type(config, path)
  local model_type = config.model_type
  if model_type == nil and config.n_embd ~= nil then return M.find(FIRST) end
  if model_type == nil then
    lib.deny("%s has no model_type%s, so it is not that of a model that nnlua knows", path,
             architecture_of(config))
  end
  local list, known = names()
  if known[model_type] then table.insert(list, 1, model_type) end
  local types, failed = {}, nil
  for _, name in ipairs(list) do
    local good, class = lib.attempt(required, name)
    if not good and name == model_type then error(class, 0) end
    if not good then failed = failed or class end
    local described = good and type(class) == "table" and class.hugging_face
    if described and described.types[model_type] then return class end
    for name_of_type in pairs(described and described.types or {}) do types[name_of_type] = true end
  end
  if failed then error(failed, 0) end               -- it may be that of this type
  refuse_type(config, path, types)
end

--- shapes(class, settings) -> Class.shapes(settings), or nil and the problem with the settings.
function M.shapes(class, settings)
  local good, shapes, full = lib.protected(class.shapes, settings)
  if good then return shapes, full end
  if not lib.is_error(shapes) then error(shapes, 0) end
  return nil, shapes.message
end

--- outline(class, settings) -> a model without parameters, for plans; `config` has all its
--- settings.
--- Errors: those of the class.
function M.outline(class, settings)
  local config
  compile.plan(function() config = class(settings).config end)
  return setmetatable({config = config}, class)
end

return M
