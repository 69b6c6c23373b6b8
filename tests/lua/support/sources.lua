-- The source files of the project, for tests of how they are written.
local files = require "nn.io.files"
local root = require("nn.host").root
local t = require "nn.test"

local M = {}
local folders = {"engine", "bindings", "kernels", "lua", "models", "recipes", "tests"}
local endings = {}
for ending in ("cc h cu cuh inc c lua py html"):gmatch "%S+" do endings[ending] = true end

local function add_files(folder, tree)
  for _, name in ipairs(files.list(root .. "/" .. folder) or {}) do
    local path = folder .. "/" .. name
    local ending = name:match "%.(%w+)$"
    if files.list(root .. "/" .. path) then
      add_files(path, tree)
    elseif not ending or endings[ending] then
      tree[path] = files.read(root .. "/" .. path)
    end
  end
end

local tree
--- copy() -> a new table {path = text} of all source files. Skips the test in an installation,
--- which has none.
function M.copy()
  if not files.list(root .. "/engine") then t.skip "this is an installation, without sources" end
  if not tree then
    tree = {}
    for _, folder in ipairs(folders) do add_files(folder, tree) end
  end
  local out = {}
  for path, text in pairs(tree) do out[path] = text end
  return out
end

return M
