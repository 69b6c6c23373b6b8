-- Functions of Lua whose results differ from call to call. In a compiled function such a result
-- would be a constant of the recording, so their use is an error.

local host = require "nn.host"
local lib = require "nn.base.capi"

local M = {}
local library = "@" .. host.root .. "/lua/"

local random = "nn.rand gives new numbers at each call"
local clock = "call it outside, and pass what changes as a tensor, or use an nn.scalar"
local input = "read outside, and pass what changes as a tensor"

local functions = {}             -- {owner=, key=, name=, advice=}
for name, advice in pairs {["math.random"] = random, ["os.time"] = clock, ["os.clock"] = clock,
                           ["os.date"] = clock, ["io.read"] = input, ["io.lines"] = input,
                           ["io.open"] = input, ["io.popen"] = input, ["nn.now"] = clock} do
  local owner, key = name:match "(%w+)%.(%w+)"
  functions[#functions + 1] = {owner = owner, key = key, name = name, advice = advice}
end

local function table_of(entry) return package.loaded[entry.owner] end

local owners = {}                -- code may read their functions and not call them; see watch()
for _, entry in ipairs(functions) do
  if entry.owner ~= "nn" then owners[table_of(entry)] = true end
end

local function refuse(name, advice)
  lib.misuse("%s in a compiled function: its result would be the same at every call; %s", name,
             advice)
end

--- refuse(guards): raises an error if a function reads one of them from an upvalue or a field,
--- other than of Lua's own tables.
function M.refuse(guards)
  for _, entry in ipairs(functions) do
    if guards:has(table_of(entry)[entry.key], owners) then refuse(entry.name, entry.advice) end
  end
end

--- watch(f) -> f(). In it, these functions raise an error when code outside the library calls them.
function M.watch(f)
  local originals = {}
  for i, entry in ipairs(functions) do
    local original = table_of(entry)[entry.key]
    originals[i] = original
    table_of(entry)[entry.key] = function(...)
      local caller = debug.getinfo(2, "S")
      if caller.source:sub(1, #library) ~= library then refuse(entry.name, entry.advice) end
      return original(...)
    end
  end
  return lib.finally(function()
    for i, entry in ipairs(functions) do table_of(entry)[entry.key] = originals[i] end
  end, f)
end

return M
