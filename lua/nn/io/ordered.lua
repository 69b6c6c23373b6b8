-- JSON values that keep what Lua tables lack: the order of names, null, empty lists, and numbers
-- such as 2.0. Chat templates write these as the author of the JSON did.
local cjson = require "cjson"
local json = require "nn.io.json"
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"

local M = {}
local List, Number = {kind = "list"}, {kind = "number"}

--- list(items) -> the table as a list, also if it is empty.
function M.list(items) return setmetatable(items or {}, List) end

--- object() -> an empty object, for put().
function M.object() return setmetatable({}, {kind = "mapping", names = {}}) end

--- put(object, name, value): sets a value of an object(); a new name comes last.
function M.put(object, name, value)
  local names = getmetatable(object).names
  if object[name] == nil then names[#names + 1] = name end
  object[name] = value
end

--- names(t) -> the names in a table: those of put() in their order, then the others, sorted.
function M.names(t)
  local out, known = {}, {}
  for _, name in ipairs((getmetatable(t) or {}).names or out) do
    if t[name] ~= nil and not known[name] then out[#out + 1], known[name] = name, true end
  end
  for _, name in ipairs(tables.sorted_keys(t)) do
    if not known[name] then out[#out + 1] = name end
  end
  return out
end

--- number(value, digits) -> a number that a Lua number cannot tell from others: 2.0, which is not
--- 2, or a whole number of so many digits (a text) that no double has its value.
function M.number(value, digits) return setmetatable({value = value, digits = digits}, Number) end

local function number_of(text)
  local value = tonumber(text)
  if not value then lib.deny("from_json: the number %s is not possible", text) end
  local whole = value % 1 == 0
  if text:find "[.eE]" then return whole and M.number(value) or value end
  if math.abs(value) < 2 ^ 53 then return value end
  return M.number(value, text)
end

-- The string that begins at the quote text[at], and the position behind it.
local function string_at(text, at)
  local stop = at + 1
  while true do
    stop = text:find('["\\]', stop)
    if text:sub(stop, stop) == '"' then break end
    stop = stop + 2
  end
  local raw = text:sub(at, stop)
  if not raw:find("\\", 1, true) then return raw:sub(2, -2), stop + 1 end
  return cjson.decode("[" .. raw .. "]")[1], stop + 1
end

local constants = {t = {true, 4}, f = {false, 5}, n = {cjson.null, 4}}

-- The value at text[at] of valid JSON, and the position behind it.
local function value_at(text, at)
  at = text:find("[^ \t\r\n]", at)
  local first = text:sub(at, at)
  if first == '"' then return string_at(text, at) end
  if constants[first] then return constants[first][1], at + constants[first][2] end
  if first ~= "{" and first ~= "[" then
    local digits = text:match("^[-+.%deE]+", at)
    return number_of(digits), at + #digits
  end
  local out = first == "{" and M.object() or M.list()
  at = text:find("[^ \t\r\n]", at + 1)
  while not text:find("^[%]}]", at) do
    local name, value
    if first == "{" then
      name, at = string_at(text, at)
      at = text:find(":", at, true) + 1
    end
    value, at = value_at(text, at)
    if name then M.put(out, name, value) else out[#out + 1] = value end
    at = text:find("[^ \t\r\n,]", at)
  end
  return out, at + 1
end

--- nn.from_json(text) -> a JSON object or list as tables, for tokenizer:chat. They keep what other
--- tables lack and chat templates write: the order of names, null (require("cjson").null), empty
--- lists, and numbers such as 2.0, which are tables {value=2}; whole numbers from 2^53 on are
--- tables {value=, digits="9007199254740993"}. Errors: invalid JSON; a text that is neither an
--- object nor a list; a name that an object has twice.
---     local tool = nn.from_json '{"name": "add", "parameters": {"b": 1, "a": []}}'
---     tool.name, #tool.parameters.a  --> "add", 0
function M.from_json(text)
  arguments.need(type(text) == "string", "from_json", "the argument", text, "a text is needed")
  if text:find "^%s*[^%[{%s]" then
    lib.deny "from_json: the text is not a JSON object or list"
  end
  json.object(text, "from_json: the text")
  return (value_at(text, 1))
end

return M
