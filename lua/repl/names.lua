-- What names in unfinished code stand for, found without running anything of the user's: values of
-- expressions such as model.blocks[1], their fields, the function a call is about, its options.
local host = require "nn.host"

local M = {}

-- Whether an __index function is the library's own, and so safe to call.
local function is_ours(f)
  local library = "@" .. host.root .. "/lua/nn/"
  return debug.getinfo(f, "S").source:sub(1, #library) == library
end

-- value[key], or nil.
local function index(value, key)
  if type(value) == "string" then return string[key] end
  if type(value) ~= "table" then return nil end
  local found, class = rawget(value, key), debug.getmetatable(value)
  if found ~= nil or type(class) ~= "table" then return found end
  local behind = rawget(class, "__index")
  if type(behind) == "table" then return index(behind, key) end
  if type(behind) == "function" and is_ours(behind) and type(key) == "string" then
    local good, result = pcall(behind, value, key)
    return good and result or nil
  end
end

local closing = {["]"] = "[", [")"] = "(", ["}"] = "{"}

-- The position of the bracket that opens what closes at tokens[i].
local function opener(tokens, i)
  local depth = 0
  for j = i, 1, -1 do
    local text = tokens[j].kind == "operator" and tokens[j].text
    if closing[text] then depth = depth + 1 end
    if text == "[" or text == "(" or text == "{" then depth = depth - 1 end
    if depth == 0 then return j end
  end
end

-- Where the expression starts whose last token is tokens[i]; nil for one that would have to be run.
local function start_of(tokens, i)
  while i >= 1 do
    local token = tokens[i]
    if token.text == "]" then
      i = (opener(tokens, i) or 0) - 1
    elseif token.kind == "name" then
      local before = tokens[i - 1] and tokens[i - 1].text
      if before ~= "." and before ~= ":" then return i end
      i = i - 2
    else
      return token.kind == "string" and i or nil
    end
  end
end

local function constant(token)
  if token.kind == "number" then return tonumber(token.text) end
  return token.kind == "string" and token.closed and token.text:match "^[\"'](.*)[\"']$" or nil
end

--- value_of(tokens, last) -> the value of the expression that ends in tokens[last]: a name, fields,
--- and constants in brackets; nil where it has none or would have to be run.
function M.value_of(tokens, last)
  local i = start_of(tokens, last)
  if not i then return nil end
  local first = tokens[i]
  local value
  if first.kind == "string" then value = constant(first) else value = rawget(_G, first.text) end
  i = i + 1
  while i <= last and value ~= nil do
    if tokens[i].text == "[" then
      local key = tokens[i + 1] and constant(tokens[i + 1])
      if key == nil or not tokens[i + 2] or tokens[i + 2].text ~= "]" then return nil end
      value, i = index(value, key), i + 3
    else
      value, i = index(value, tokens[i + 1].text), i + 2
    end
  end
  return value
end

local function add_keys(value, list)
  for key in pairs(value) do
    if type(key) == "string" and key:find "^[%a_][%w_]*$" then list[#list + 1] = key end
  end
end

--- fields(value, only_methods) -> names that may follow "." or, methods only, ":".
function M.fields(value, only_methods)
  local list, seen = {}, {}
  if type(value) == "string" then value = string end
  local here = value
  while type(here) == "table" and not seen[here] do
    seen[here] = true
    add_keys(here, list)
    local class = debug.getmetatable(here)
    if type(class) ~= "table" then break end
    local behind = rawget(class, "__index")
    if type(behind) == "function" then         -- methods are then in the metatable itself
      if rawget(class, "names") then add_keys(class.names(), list) else add_keys(class, list) end
    end
    here = behind
  end
  local wanted = {}
  for _, name in ipairs(list) do
    local callable = only_methods and type(index(value, name)) == "function"
    if name:sub(1, 2) ~= "__" and (callable or not only_methods) then
      wanted[#wanted + 1] = name
    end
  end
  return wanted
end

--- call_around(tokens) -> the name of the function in whose arguments the tokens end, and whether
--- that is in a table of options; nil where it is in none.
function M.call_around(tokens)
  local depth, in_table = 0, false
  for i = #tokens, 1, -1 do
    local token = tokens[i]
    local text = token.kind == "operator" and token.text
    if closing[text] then depth = depth + 1 end
    if text == "(" or text == "{" or text == "[" then
      if depth == 0 then
        local before = tokens[i - 1]
        in_table = in_table or text == "{"
        if before and before.kind == "name" then return before.text, in_table end
        local argument = before and (before.text == "," or before.text == "(")
        if text ~= "{" or not argument then return nil end
      else
        depth = depth - 1
      end
    end
  end
end

--- options(name) -> names of the options that a function of the library takes.
function M.options(name)
  local list = {}
  local op = require("nn.core.op").ops[name]
  for _, a in ipairs(op and op.attributes or {}) do list[#list + 1] = a.name end
  for _, option in ipairs(require("nn.help.lookup").options(name)) do list[#list + 1] = option end
  if name == "data" or name == "run" then        -- these read settings that a recipe declares
    add_keys(require("nn")[name .. "_fields"] {}, list)
  end
  return list
end

return M
