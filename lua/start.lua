-- Sets Lua up before anything else runs: which file a module comes from. bindings/main.cc calls it.
--
-- nnlua's own modules, nn.*, come from its folder alone, and cjson from where it was installed:
-- neither the current folder nor LUA_PATH or LUA_CPATH can replace or break them. All other
-- modules, such as models.gpt2, are the user's first: those of the current folder, those beside the
-- script, those of LUA_PATH; then nnlua's, then the system's.
-- options: cjson, the library that the build found, or ""; here, "." or nnlua's folder if that is
-- the current one; is_session, for the prompt.
local host, root, exit, options = ...
local script = arg[0]                              -- of the command line; nil if there is none

host.root = root
package.loaded["nn.host"] = host
rawset(os, "exit", exit)

-- ### Files of modules

local own = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua"
local parts_of_program = {repl = true, health = true, completion = true}

-- A script may have a module of its own with the name of a part of the program.
local function is_own(name)
  return name == "nn" or name:find "^nn%." ~= nil
    or (options.is_session or not script) and parts_of_program[name:match "^[^.]*"] == true
end

-- A script may require a module of its own name, but not itself.
local function is_script(path)
  return script and (path == script or path == options.here .. "/" .. script)
end

--- host.find_module(name) -> the file that `require` loads for a name; nil and the files that do
--- not exist.
function host.find_module(name)
  if is_own(name) then return package.searchpath(name, own) end
  local here = ("%s/%s.lua"):format(options.here, (name:gsub("%.", "/")))
  local file, problem, number = io.open(here)
  if file then file:close() end
  if number == 13 then error(problem, 0) end       -- EACCES: no other file may take its place
  local missing = ""
  for template in package.path:gmatch "[^;]+" do
    local path, text = package.searchpath(name, template)
    if path and not is_script(path) then return path end
    missing = missing .. (text or "")
  end
  return nil, missing
end

-- The folders of a script from which it can require modules: its own, and that above recipes/, as
-- in nnlua's tree. nnlua's own recipes have none.
local function folders_of_script()
  local folder = script and script:match "^(.*/)" or ""
  if folder == "" or folder == "./" or folder == root .. "/recipes/" then return "" end
  local above = folder:match "^(.*/)recipes/+$" or folder:match "^recipes/+$" and "./"
  return folder .. "?.lua;" .. (above and above .. "?.lua;" or "")
end

-- The entries of an environment variable, in which ";;" stands for the defaults, and whether they
-- follow.
local function entries_of(variable)
  local given = os.getenv(variable)
  if not given then return "", true end
  local entries, count = (";" .. given .. ";"):gsub(";;+", ";")
  return entries:sub(2), count > 0 and given:find(";;", 1, true) ~= nil
end

local function module_path(defaults)
  local given, with_defaults = entries_of "LUA_PATH"
  local system = with_defaults and defaults:gsub("^%./%?%.lua;", "") or ""
  return options.here .. "/?.lua;" .. folders_of_script() .. given .. root .. "/?.lua;" .. root
    .. "/lua/?.lua;" .. system
end

-- ### cjson

-- The folders of libraries that the system has, without the current one.
local function system_libraries(defaults)
  local found = {}
  for entry in defaults:gmatch "[^;]+" do
    if entry:find "^/.*%?" then found[#found + 1] = (entry:gsub("%?", "cjson")) end
  end
  return found
end

local function load_cjson(defaults)
  local files, problems = system_libraries(defaults), {}
  for _, path in ipairs {options.cjson, os.getenv "NNLUA_CJSON"} do
    if path ~= "" then table.insert(files, 1, path) end
  end
  for _, path in ipairs(files) do
    local open, problem = package.loadlib(path, "luaopen_cjson")
    if open then return open "cjson" end
    problems[#problems + 1] = "\n  " .. problem
  end
  error("nnlua needs lua-cjson for LuaJIT, and none of these files is it; install the package "
        .. "lua-cjson:" .. table.concat(problems), 0)
end

package.loaded.cjson = load_cjson(package.cpath)
package.path = module_path(package.path)
local libraries, with_defaults = entries_of "LUA_CPATH"
package.cpath = libraries .. (with_defaults and package.cpath or "")

-- Lua's loader of files, by these rules.
package.loaders[2] = function(name)
  local path, missing = host.find_module(name)
  if not path then return missing end
  local chunk, problem = loadfile(path)
  if chunk then return chunk end
  error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, problem), 0)
end
