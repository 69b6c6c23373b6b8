-- Values as texts: JSON, as json.dumps() writes it, and what {{ value }} writes, as Python's str().
local checks = require "nn.chat.checks"
local ffi = require "ffi"
local utf8 = require "nn.base.utf8"
local values = require "nn.chat.values"

local M = {}
local DEEPEST = 100                          -- levels of lists and dicts
local ELEMENT = 200                          -- bytes that an element of a list counts at least
local kind = values.kind

-- ### JSON

local short = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
               ["\b"] = "\\b", ["\f"] = "\\f"}

-- The escapes of a character beyond ASCII: \uXXXX, two of them beyond U+FFFF.
local function escaped(c)
  local code = utf8.decode(ffi.cast("const uint8_t *", c), 0, #c) or 0xFFFD
  if code < 0x10000 then return ("\\u%04x"):format(code) end
  code = code - 0x10000
  return ("\\u%04x\\u%04x"):format(0xD800 + math.floor(code / 1024), 0xDC00 + code % 1024)
end

local function json_text(text, options)
  if not text:find '[%z\1-\31"\\\127-\255]' then return '"' .. text .. '"' end
  text = text:gsub('[%z\1-\31"\\]', function(c)
    return short[c] or ("\\u%04x"):format(c:byte())
  end)
  if options.ascii then text = text:gsub("[\127\192-\255][\128-\191]*", escaped) end
  return '"' .. text .. '"'
end

local constants = {inf = "Infinity", ["-inf"] = "-Infinity", nan = "NaN"}

-- The JSON of the members of a list or a dict, or nil and the kind of what has no JSON.
local function members(value, options, level)
  local is_list, parts = kind(value) == "list", {}
  local list = is_list and value or values.keys(value)
  checks.count(options.need, ELEMENT * #list)
  if options.sorted and not is_list then
    for _, name in ipairs(list) do
      local good = kind(name) == "string" or kind(name) == "number"
      options.need(good and type(name) == type(list[1]),
                   "tojson can sort names that are all texts or all numbers")
    end
    table.sort(list)
  end
  local size = 0
  for i, key in ipairs(list) do
    local member = key
    if not is_list then member = value[key] end
    if kind(member) == "string" then checks.size(options.need, size + #member) end
    local item, problem = M.json(member, options, level + 1)
    if not item then return nil, problem end
    local name = kind(key) == "string" and key or M.json(key, options)
    parts[i] = is_list and item or json_text(name, options) .. options.colon .. item
    size = size + #parts[i] + #options.comma
    checks.size(options.need, size)
  end
  return parts
end

--- json(value, {need=, comma=", ", colon=": ", indent=nil, ascii=false, sorted=false}) -> its JSON.
--- indent: the text of a level, or nil for one line; ascii: other characters are escaped; sorted:
--- names are. An empty Lua table is an empty object. Returns nil and the kind of what has no JSON.
function M.json(value, options, level)
  local what = kind(value)
  level = level or 1
  if what == "string" then return json_text(value, options) end
  if what == "boolean" then return tostring(value) end
  if what == "none" then return "null" end
  if what == "number" then
    local text = values.number(value)
    return constants[text] or text
  end
  if what == "markup" then return json_text(value.text, options) end
  local is_list = what == "list"
  if values.is_view(value) then return nil, "view" end
  if not is_list and not values.is_mapping(value) then return nil, what end
  if level > DEEPEST then return nil, "list, nested too deeply" end
  local parts, problem = members(value, options, level)
  if not parts then return nil, problem end
  local open, close = is_list and "[" or "{", is_list and "]" or "}"
  if #parts == 0 or not options.indent then
    return open .. table.concat(parts, options.comma) .. close
  end
  local inner = "\n" .. options.indent:rep(level)
  return open .. inner .. table.concat(parts, options.comma .. inner) .. "\n"
    .. options.indent:rep(level - 1) .. close
end

-- ### Python's str() and repr()

local hidden = {Cc = true, Cf = true, Cs = true, Co = true, Zl = true, Zp = true, Zs = true}
local ranges                                 -- {{first, last}, ...} of what repr() escapes

-- Whether repr() escapes a code point. It also escapes those that Python's version of Unicode does
-- not know; here, all unassigned ones are written.
local function is_hidden(code)
  if not ranges then
    local at = 0
    ranges = {}
    for category, count in require("nn.unicode.categories").categories:gmatch "(%u%l)(%x+)" do
      local size = tonumber(count, 16)
      if hidden[category] then ranges[#ranges + 1] = {at, at + size - 1} end
      at = at + size
    end
  end
  for _, range in ipairs(ranges) do
    if code <= range[2] then return code >= range[1] end
  end
  return false
end

local named = {["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\\"] = "\\\\"}

local function repr_text(text)
  if not text:find "[%z\1-\31\\'\127-\255]" then return "'" .. text .. "'" end
  local quote = text:find("'", 1, true) and not text:find('"', 1, true) and '"' or "'"
  text = text:gsub("[%z\1-\31\\'\127]", function(c)
    if c == "'" then return quote == "'" and "\\'" or c end
    return named[c] or ("\\x%02x"):format(c:byte())
  end)
  text = text:gsub("[\192-\255][\128-\191]*", function(c)
    local code = utf8.decode(ffi.cast("const uint8_t *", c), 0, #c)
    if not code or not is_hidden(code) then return c end
    return (code < 0x100 and "\\x%02x" or code < 0x10000 and "\\u%04x" or "\\U%08x"):format(code)
  end)
  return quote .. text .. quote
end

local function repr(need, value, level)
  local what = kind(value)
  if what == "string" then return repr_text(value) end
  if what == "undefined" then return "Undefined" end
  need(what ~= "markup", "a list with a text of the filter safe has no text here")
  need(not values.is_view(value),
       "dict.keys(), range() and similar cannot be written; apply '| list'")
  if what ~= "list" and not values.is_mapping(value) then return M.shown(need, value) end
  need(level <= DEEPEST, "a list is nested too deeply")
  local is_list, parts, size = what == "list", {}, 0
  local list = is_list and value or values.keys(value)
  checks.count(need, ELEMENT * #list)
  for i, key in ipairs(list) do
    if kind(key) == "string" then checks.size(need, size + #key) end
    parts[i] = repr(need, key, level + 1)
    if not is_list then parts[i] = parts[i] .. ": " .. repr(need, value[key], level + 1) end
    size = size + #parts[i] + 2
    checks.size(need, size)
  end
  local text = table.concat(parts, ", ")
  if values.is_tuple(value) then return "(" .. text .. (#parts == 1 and ",)" or ")") end
  return is_list and "[" .. text .. "]" or "{" .. text .. "}"
end

--- repr(need, value) -> the text that Python's repr() gives a value.
function M.repr(need, value) return repr(need, value, 1) end

--- shown(need, value) -> the text that {{ value }} writes.
function M.shown(need, value)
  local what = kind(value)
  if what == "string" then return value end
  if what == "markup" then return value.text end
  if what == "undefined" then return "" end
  if what == "none" then return "None" end
  if what == "boolean" then return value and "True" or "False" end
  if what == "number" then return values.number(value) end
  if what == "list" or values.is_mapping(value) then return repr(need, value, 1) end
  need(false, "a value of kind %s has no text", what)
end

return M
