-- What names in unfinished code refer to, found without running the user's code: the values of
-- expressions such as model.blocks[1], their fields, the function around the cursor, its options.
local host = require "nn.host"
local iterate = require "nn.core.iterate"
local lexer = require "repl.lexer"

local M = {}

-- Whether an __index function belongs to the library, so that calling it is safe.
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
  local parent = rawget(class, "__index")
  if type(parent) == "table" then return index(parent, key) end
  if type(parent) == "function" and is_ours(parent) and type(key) == "string" then
    local good, result = pcall(parent, value, key)
    return good and result or nil
  end
end

-- The index of the bracket that tokens[i] closes.
local function opener(tokens, i)
  local depth = 0
  for j = i, 1, -1 do
    depth = depth + lexer.bracket_change(tokens[j])
    if depth == 0 then return j end
  end
end

-- Where the expression that ends in tokens[i] starts; nil for one with a call.
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

--- value_of(tokens, last) -> the value of the expression that ends in tokens[last]: a name, fields
--- and constant indices; nil where it has none or contains a call.
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

--- add_names(value, list): appends the keys of a table that are names.
function M.add_names(value, list)
  for key in iterate.next_entry, value do  -- pairs() refuses tensors
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
    M.add_names(here, list)
    local class = debug.getmetatable(here)
    if type(class) ~= "table" then break end
    here = rawget(class, "__index")
    if type(here) == "function" then         -- the metatable then has the methods itself
      M.add_names(rawget(class, "names") and class.names() or class, list)
    end
  end
  local wanted = {}
  for _, name in ipairs(list) do
    local fits = not only_methods or type(index(value, name)) == "function"
    if fits and name:sub(1, 2) ~= "__" then wanted[#wanted + 1] = name end
  end
  return wanted
end

--- call_around(tokens) -> the name of the function whose arguments contain the end of the tokens,
--- and whether that is in a table of options; nil outside calls.
function M.call_around(tokens)
  local depth, in_table = 0, false
  for i = #tokens, 1, -1 do
    local text, before = tokens[i].text, tokens[i - 1]
    depth = depth + lexer.bracket_change(tokens[i])
    if depth == 1 then                       -- this bracket is open at the end
      depth, in_table = 0, in_table or text == "{"
      if before and before.kind == "name" then return before.text, in_table end
      local is_argument = before and (before.text == "," or before.text == "(")
      if text ~= "{" or not is_argument then return nil end
    end
  end
end

--- options(name) -> names of the options that a function of the library takes.
function M.options(name)
  local list = {}
  local op = require("nn.core.op").ops[name]
  for _, a in ipairs(op and op.attributes or {}) do list[#list + 1] = a.name end
  for _, option in ipairs(require("nn.help.lookup").options(name)) do list[#list + 1] = option end
  if name == "data" or name == "run" then    -- these read settings that a recipe declares
    M.add_names(require("nn")[name .. "_fields"] {}, list)
  end
  return list
end

return M
