-- The values of Jinja templates. Texts, whole numbers and booleans are Lua's; lists and dicts are
-- tables. A dict that a template makes has an order; of other tables, the names are sorted.
local utf8 = require "nn.base.utf8"
local ffi = require "ffi"

local M = {LONGEST = 1e8, MOST = 1e6}        -- bytes of a text; elements of a list
M.NONE, M.UNDEFINED = setmetatable({}, {kind = "none"}), setmetatable({}, {kind = "undefined"})
local Dict, List, Namespace = {kind = "mapping"}, {kind = "list"}, {kind = "namespace"}
local ORDER = {}                             -- the key of the list of a dict's names

function M.list(items) return setmetatable(items or {}, List) end
function M.namespace(values) return setmetatable(values, Namespace) end
function M.dict() return setmetatable({[ORDER] = {}}, Dict) end

--- put(dict, key, value): sets a value of a dict made by dict().
function M.put(dict, key, value)
  if dict[key] == nil then table.insert(dict[ORDER], key) end
  dict[key] = value
end

--- kind(value) -> "string", "number", "boolean", "none", "undefined", "list", "mapping",
--- "namespace" or "function".
function M.kind(value)
  if value == nil then return "undefined" end
  local kind = type(value)
  if kind == "userdata" then return "none" end                -- null in JSON
  if kind ~= "table" then return kind end
  local made = getmetatable(value)
  if type(made) == "table" and made.kind then return made.kind end
  return next(value) ~= nil and #value == 0 and "mapping" or #value > 0 and "list" or "empty"
end

function M.is_list(value)
  local kind = M.kind(value)
  return kind == "list" or kind == "empty"
end

function M.is_mapping(value)
  local kind = M.kind(value)
  return kind == "mapping" or kind == "empty"
end

--- keys(dict) -> its names in order.
function M.keys(dict)
  local order = rawget(dict, ORDER)
  if order then return order end
  local names = {}
  for key in pairs(dict) do names[#names + 1] = key end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  return names
end

--- characters(text) -> a list of the characters of a text.
function M.characters(text)
  local p, at, list = ffi.cast("const uint8_t *", text), 0, {}
  while at < #text do
    local _, length = utf8.decode(p, at, #text)
    list[#list + 1] = text:sub(at + 1, at + (length or 1))
    at = at + (length or 1)
  end
  return list
end

function M.is_true(value)
  local kind = M.kind(value)
  if kind == "boolean" then return value end
  if kind == "string" then return value ~= "" end
  if kind == "number" then return value ~= 0 end
  if kind == "list" then return #value > 0 end
  if kind == "mapping" then return #M.keys(value) > 0 end
  return kind == "function" or kind == "namespace"
end

function M.equal(a, b)
  local kind = M.kind(a)
  if kind == "none" or kind == "undefined" then return M.kind(b) == kind end
  if M.is_list(a) and M.is_list(b) then
    if #a ~= #b then return false end
    for i = 1, #a do
      if not M.equal(a[i], b[i]) then return false end
    end
    return true
  end
  if kind == "mapping" and M.kind(b) == "mapping" then
    local names = M.keys(a)
    if #names ~= #M.keys(b) then return false end
    for _, name in ipairs(names) do
      if b[name] == nil or not M.equal(a[name], b[name]) then return false end
    end
    return true
  end
  return a == b
end

-- ### Texts

-- Python's white space: the characters of str.isspace(), as patterns.
local spaces = {"[\9-\13\28-\32]", "\194[\133\160]", "\225\154\128",
                "\226\128[\128-\138\168\169\175]", "\226\129\159", "\227\128\128"}

local function space_length(text, at_end)
  for _, pattern in ipairs(spaces) do
    local first, last = text:find(at_end and pattern .. "$" or "^" .. pattern)
    if first then return last - first + 1 end
  end
end

--- strip(text, left, right, set) -> the text without white space, or the characters in `set`, on
--- its left and right.
function M.strip(text, left, right, set)
  if set then
    local known, list = {}, M.characters(text)
    for _, c in ipairs(M.characters(set)) do known[c] = true end
    local first, last = 1, #list
    while left and first <= last and known[list[first]] do first = first + 1 end
    while right and last >= first and known[list[last]] do last = last - 1 end
    return table.concat(list, "", first, last)
  end
  local first, last = 1, #text
  while left do                              -- no white space has more than 3 bytes
    local length = space_length(text:sub(first, first + 2), false)
    if not length then break end
    first = first + length
  end
  while right do
    local length = space_length(text:sub(math.max(first, last - 2), last), true)
    if not length then break end
    last = last - length
  end
  return text:sub(first, last)
end

-- ### JSON, as Python's json.dumps(value, ensure_ascii=False) writes it

local short = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
               ["\b"] = "\\b", ["\f"] = "\\f"}

local function json_text(text)
  return '"' .. text:gsub('[%z\1-\31"\\]', function(c)
    return short[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

--- number(value) -> a number as text.
function M.number(value)
  if value % 1 == 0 and math.abs(value) < 2 ^ 53 then return ("%d"):format(value) end
  for digits = 15, 17 do
    local text = ("%%.%dg"):format(digits):format(value)
    if tonumber(text) == value then return text end
  end
  return tostring(value)
end

--- json(value, indent) -> its JSON; indent: spaces per level, or nil for one line. An empty Lua
--- table is an empty object. Returns nil and the kind of a value that has no JSON.
function M.json(value, indent, level)
  local kind = M.kind(value)
  level = level or 1
  if kind == "string" then return json_text(value) end
  if kind == "number" then return M.number(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "none" then return "null" end
  local is_list = kind == "list"
  if not is_list and not M.is_mapping(value) then return nil, kind end
  local parts = {}
  for _, key in ipairs(is_list and value or M.keys(value)) do
    local item, problem = M.json(is_list and key or value[key], indent, level + 1)
    if not item or level > 100 then return nil, problem or "too deep list" end
    parts[#parts + 1] = is_list and item or json_text(tostring(key)) .. ": " .. item
  end
  local open, close = is_list and "[" or "{", is_list and "]" or "}"
  if #parts == 0 or not indent then return open .. table.concat(parts, ", ") .. close end
  local inner, outer = "\n" .. (" "):rep(indent * level), "\n" .. (" "):rep(indent * (level - 1))
  return open .. inner .. table.concat(parts, "," .. inner) .. outer .. close
end

return M
