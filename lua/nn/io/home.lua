-- The home folder in paths. A shell replaces ~ only at the start of a word, so out=~/runs reaches
-- the program as it is typed; settings that are paths are expanded here, as the shell would.
local lib = require "nn.base.capi"

local M = {}

local function expand(path)
  local user, rest = path:match "^~([^/]*)(.*)$"
  if not user then return path end
  if user ~= "" then
    lib.deny("'%s': the home folder of another user is not looked up; write its path, or ./%s for "
             .. "a file of this name", path, path)
  end
  local home = os.getenv "HOME" or ""
  if home == "" then
    lib.deny("'%s': HOME is not set; write the path, or ./%s for a file of this name", path, path)
  end
  return (rest ~= "" and home:gsub("/+$", "") or home) .. rest
end

--- expand(path, is_list) -> the path with the home folder for ~ at its start; is_list: of each of
--- several, separated by commas. Errors: ~user, HOME is not set.
function M.expand(path, is_list)
  if not path:find("~", 1, true) then return path end
  if not is_list then return expand(path) end
  return (path:gsub("[^,]+", function(one)
    local space, rest = one:match "^(%s*)(.*)$"
    return space .. expand(rest)
  end))
end

--- refuse(path): raises an error for a path that begins with ~, before a folder of that name is
--- created. Scripts expand paths themselves.
function M.refuse(path)
  if path:sub(1, 1) ~= "~" then return end
  lib.deny("'%s': only settings of recipes may begin with ~; write os.getenv \"HOME\" .. \"/...\", "
           .. "or \"./%s\" for a folder of this name", path, path)
end

return M
