-- Loads the script that the program runs, and explains what it cannot load: a file or module with a
-- misspelt name, the syntax of another language.
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local hints = require "nn.base.hints"
local host = require "nn.host"
local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"

local M = {}

-- Adds the names of the Lua files in a folder to a set, without .lua. `before` precedes them.
local function add_names(set, folder, before)
  for _, name in ipairs(files.list(folder) or {}) do
    local stem = name:match "^(.*)%.lua$"
    if stem then set[before .. stem] = true end
  end
end

-- "; did you mean 'recipes/gpt2_train.lua'?" for a script that does not exist, or "".
local function other_script(name)
  local folder, known = name:match "^(.*/)" or "", {}
  add_names(known, folder == "" and "." or folder, folder)
  if folder == "recipes/" then add_names(known, host.root .. "/recipes", folder) end
  local near = suggest.nearest((name:gsub("%.lua$", "")), known)
  return near and ("; did you mean '%s.lua'?"):format(near) or ""
end

-- A hint for a syntax error, by the line that it names.
local function syntax_hint(err, name)
  local number, at = tonumber(err:match ":(%d+): "), 0
  for line in io.lines(name) do
    at = at + 1
    if at == number then return hints.syntax(line) end
  end
  return ""
end

-- Modules that exist: the library's, and files on Lua's path.
local function module_names(name)
  local folder, known = name:match "^(.*%.)" or "", {}
  local path = folder:gsub("%.", "/")
  for root in (host.root .. "/lua/?.lua;" .. package.path):gmatch "([^;]*)%?%.lua" do
    add_names(known, root .. path, folder)
  end
  for loaded in pairs(package.loaded) do
    if not loaded:find "%." then known[loaded] = true end
  end
  return known
end

-- The last of package.loaders: replaces Lua's list of files without the module by the nearest name.
local function explain_missing(name)
  local hint = suggest.suggestion(name, module_names(name))
  if hint == "" then return nil end
  lib.misuse("there is no module '%s'%s", name, hint)
end

table.insert(package.loaders, explain_missing)

--- load(name) -> the function of a script ("-": of standard input), or nil and the error.
function M.load(name)
  local chunk, err = loadfile(name ~= "-" and name or nil)
  if chunk then return chunk end
  return nil, err .. (file_type.of(name) == "file" and syntax_hint(err, name) or other_script(name))
end

-- Lua's loader of files, with these errors.
local find = package.loaders[2]
package.loaders[2] = function(name)
  local good, found = pcall(find, name)
  if good then return found end
  local path = host.find_module(name)
  local _, err = M.load(path)
  error(err or found, 0)
end

return M
