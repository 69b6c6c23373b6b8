-- The filters, tests and methods that chat templates use. Each gets need(good, text, ...), which
-- raises an error of the template.
local values = require "nn.chat.values"

local M = {filters = {}, tests = {}, methods = {}}
local filters, tests, methods = M.filters, M.tests, M.methods
local NONE, UNDEFINED = values.NONE, values.UNDEFINED
local kind = values.kind

local function text_of(need, value, who)
  need(kind(value) == "string", "%s needs a text, not a value of kind %s", who, kind(value))
  return value
end

-- Letters beyond ASCII have no upper and lower case here, so they are refused, not left.
local function ascii(need, value, who)
  need(not text_of(need, value, who):find "[\128-\255]", "%s is supported for ASCII only", who)
  return value
end

local function number_of(need, value, who)
  need(kind(value) == "number" and value % 1 == 0,
       "%s needs a whole number, not a value of kind %s", who, kind(value))
  return value
end

--- check_size(need, bytes): raises an error where a text would become too long.
function M.check_size(need, bytes)
  need(bytes < values.LONGEST, "a text of %.0f bytes; less than %d are possible", bytes,
       values.LONGEST)
end
local check_size = M.check_size

local function items_of(need, value, who)
  if kind(value) == "string" then return values.list(values.characters(value)) end
  if kind(value) == "mapping" then
    local names = values.list {}
    for i, name in ipairs(values.keys(value)) do names[i] = name end
    return names
  end
  if kind(value) == "undefined" then return values.list {} end
  need(values.is_list(value), "%s needs a list, not a value of kind %s", who, kind(value))
  return value
end
M.items_of = items_of

local function title(text)
  return (text:lower():gsub("%a+", function(w) return w:sub(1, 1):upper() .. w:sub(2) end))
end

-- ### Methods of texts and dicts

-- The characters that strip() removes: nil for white space.
local function set_of(need, set, who)
  if set == nil or set == NONE then return nil end
  return text_of(need, set, who)
end

function methods.strip(need, text, set)
  return values.strip(text_of(need, text, "strip"), true, true, set_of(need, set, "strip"))
end
function methods.lstrip(need, text, set)
  return values.strip(text_of(need, text, "lstrip"), true, false, set_of(need, set, "lstrip"))
end
function methods.rstrip(need, text, set)
  return values.strip(text_of(need, text, "rstrip"), false, true, set_of(need, set, "rstrip"))
end
function methods.upper(need, text) return ascii(need, text, "upper"):upper() end
function methods.lower(need, text) return ascii(need, text, "lower"):lower() end
function methods.title(need, text) return title(ascii(need, text, "title")) end
function methods.capitalize(need, text)
  text = ascii(need, text, "capitalize")
  return text:sub(1, 1):upper() .. text:sub(2):lower()
end

local function has_end(need, text, what, who, matches)
  text_of(need, text, who)
  for _, one in ipairs(kind(what) == "list" and what or {what}) do
    if matches(text, text_of(need, one, who)) then return true end
  end
  return false
end

function methods.startswith(need, text, what)
  return has_end(need, text, what, "startswith", function(a, b) return a:sub(1, #b) == b end)
end
function methods.endswith(need, text, what)
  return has_end(need, text, what, "endswith", function(a, b)
    return b == "" or a:sub(-#b) == b
  end)
end

function methods.replace(need, text, from, to, count)
  text_of(need, text, "replace")
  from, to = text_of(need, from, "replace"), text_of(need, to, "replace")
  need(from ~= "", "replace needs a text that is not empty")
  if count ~= nil and count ~= NONE and number_of(need, count, "replace") < 0 then count = nil end
  if count == NONE then count = nil end
  local pattern = from:gsub("%p", "%%%0")
  local found = select(2, text:gsub(pattern, "", count))
  check_size(need, #text + found * (#to - #from))
  return (text:gsub(pattern, (to:gsub("%%", "%%%%")), count))
end

-- The parts of a text between separators, or between white space.
function methods.split(need, text, separator, most)
  text_of(need, text, "split")
  local out, at = values.list {}, 1
  if most ~= nil then number_of(need, most, "split") end
  if separator == nil or separator == NONE then
    need(most == nil or most < 0, "split at white space with a limit is not supported")
    need(not text:find "[\128-\255]" or not text:find "\194[\133\160]", "split at such white space")
    for word in text:gmatch "[^\9-\13\28-\32]+" do out[#out + 1] = word end
    return out
  end
  need(text_of(need, separator, "split") ~= "", "split needs a separator that is not empty")
  while not most or most < 0 or #out < most do
    local first, last = text:find(separator, at, true)
    if not first then break end
    out[#out + 1] = text:sub(at, first - 1)
    at = last + 1
  end
  out[#out + 1] = text:sub(at)
  return out
end

function methods.items(need, dict)
  need(values.is_mapping(dict), "items needs a dict, not a value of kind %s", kind(dict))
  local out = values.list {}
  for i, key in ipairs(values.keys(dict)) do out[i] = values.list {key, dict[key]} end
  return out
end
function methods.keys(need, dict)
  need(values.is_mapping(dict), "keys needs a dict, not a value of kind %s", kind(dict))
  return items_of(need, dict, "keys")
end
function methods.values(need, dict)
  local out = values.list {}
  for i, pair in ipairs(methods.items(need, dict)) do out[i] = pair[2] end
  return out
end
function methods.get(need, dict, key, default)
  need(values.is_mapping(dict), "get needs a dict, not a value of kind %s", kind(dict))
  local value = dict[key]
  if value == nil then value = default end
  if value == nil then return NONE end
  return value
end

-- ### Filters

for _, name in ipairs {"upper", "lower", "title", "capitalize", "replace"} do
  filters[name] = methods[name]
end
filters.items = methods.items
function filters.trim(need, text, set) return methods.strip(need, text, set) end
function filters.string(need, value) return M.shown(need, value) end
function filters.safe(_, value) return value end
function filters.list(need, value) return items_of(need, value, "list") end
function filters.length(need, value)
  if kind(value) == "mapping" then return #values.keys(value) end
  return #items_of(need, value, "length")
end
filters.count = filters.length
local function or_undefined(value)
  if value == nil then return UNDEFINED end
  return value
end
function filters.first(need, value) return or_undefined(items_of(need, value, "first")[1]) end
function filters.last(need, value)
  local items = items_of(need, value, "last")
  return or_undefined(items[#items])
end
function filters.reverse(need, value)
  local items, out = items_of(need, value, "reverse"), values.list {}
  for i = #items, 1, -1 do out[#out + 1] = items[i] end
  return kind(value) == "string" and table.concat(out) or out
end
function filters.join(need, value, separator)
  local out, size = {}, 0
  separator = separator == nil and "" or text_of(need, separator, "join")
  for i, item in ipairs(items_of(need, value, "join")) do
    out[i] = M.shown(need, item)
    size = size + #out[i] + #separator
  end
  check_size(need, size)
  return table.concat(out, separator)
end
function filters.default(_, value, default, also_false)
  if kind(value) == "undefined" or also_false and not values.is_true(value) then
    return default == nil and "" or default
  end
  return value
end
filters.d = filters.default
function filters.int(need, value)
  local number = kind(value) == "string" and value:match "^%s*([-+]?%d+)%s*$" or value
  if kind(value) == "boolean" then number = value and 1 or 0 end
  number = tonumber(number)
  need(number, "int needs a whole number")
  return number < 0 and math.ceil(number) or math.floor(number)
end
function filters.abs(need, value)
  need(kind(value) == "number", "abs needs a number")
  return math.abs(value)
end
function filters.tojson(need, value, indent)
  if indent == NONE then indent = nil end
  need(indent == nil or number_of(need, indent, "tojson") >= 0 and indent <= 100,
       "tojson needs an indent of 0 to 100")
  local text, problem = values.json(value, indent)
  need(text, "tojson of a value of kind %s", problem)
  return text
end
function filters.indent(need, text, width, first)
  width = width == nil and 4 or number_of(need, width, "indent")
  need(width >= 0 and width <= 100, "indent needs a width of 0 to 100")
  local blank = (" "):rep(width)
  text = text_of(need, text, "indent"):gsub("\n([^\n])", function(c) return "\n" .. blank .. c end)
  return first and blank .. text or text
end

-- The value at a path of attributes: a name, a place in a list from 0, or several as "a.b.0".
local function attribute_of(need, value, path)
  need(kind(path) == "string" or kind(path) == "number", "an attribute of kind %s", kind(path))
  for part in tostring(path):gmatch "[^.]+" do
    need(kind(value) ~= "undefined", "'%s' of an undefined value", part)
    local place = part:match "^%d+$"
    local key = place and values.is_list(value) and tonumber(place) + 1 or part
    if type(value) == "table" then value = or_undefined(value[key]) else value = UNDEFINED end
  end
  return value
end

local function selected(need, list, wanted, attribute, name, argument)
  local out = values.list {}
  local test = tests[name or "truthy"]
  need(test, "the test '%s' is not supported", tostring(name))
  for _, item in ipairs(items_of(need, list, "select")) do
    local value = item
    if attribute ~= nil then value = attribute_of(need, item, attribute) end
    if test(need, value, argument) == wanted then out[#out + 1] = item end
  end
  return out
end

function filters.selectattr(need, list, attribute, ...)
  need(attribute ~= nil, "selectattr needs an attribute")
  return selected(need, list, true, attribute, ...)
end
function filters.rejectattr(need, list, attribute, ...)
  need(attribute ~= nil, "rejectattr needs an attribute")
  return selected(need, list, false, attribute, ...)
end
function filters.select(need, list, ...) return selected(need, list, true, nil, ...) end
function filters.reject(need, list, ...) return selected(need, list, false, nil, ...) end
function filters.map(need, list, name, ...)
  local out = values.list {}
  for i, item in ipairs(items_of(need, list, "map")) do
    if type(name) == "table" then
      out[i] = attribute_of(need, item, name.attribute)
    else
      need(filters[name], "the filter '%s' is not supported", tostring(name))
      out[i] = filters[name](need, item, ...)
    end
  end
  return out
end

-- ### Tests

function tests.truthy(_, value) return values.is_true(value) end
function tests.defined(_, value) return kind(value) ~= "undefined" end
function tests.undefined(_, value) return kind(value) == "undefined" end
function tests.none(_, value) return kind(value) == "none" end
function tests.string(_, value) return kind(value) == "string" end
function tests.number(_, value) return kind(value) == "number" or kind(value) == "boolean" end
function tests.integer(_, value) return kind(value) == "number" and value % 1 == 0 end
function tests.boolean(_, value) return kind(value) == "boolean" end
function tests.mapping(_, value) return values.is_mapping(value) end
function tests.iterable(_, value)
  return type(value) == "table" and kind(value) ~= "none" and kind(value) ~= "namespace"
    or kind(value) == "string" or kind(value) == "undefined"
end
function tests.sequence(_, value)
  return values.is_list(value) or values.is_mapping(value) or kind(value) == "string"
    or kind(value) == "undefined"
end
tests["true"] = function(_, value) return value == true end
tests["false"] = function(_, value) return value == false end
function tests.equalto(_, value, other) return values.equal(value, other) end
tests.eq = tests.equalto
function tests.ne(_, value, other) return not values.equal(value, other) end
function tests.odd(need, value) return number_of(need, value, "odd") % 2 == 1 end
function tests.even(need, value) return number_of(need, value, "even") % 2 == 0 end
tests["in"] = function(need, value, list) return M.contains(need, list, value) end

--- contains(need, container, value) -> whether `value` is in a text, a list or a dict.
function M.contains(need, container, value)
  if kind(container) == "string" then
    return container:find(text_of(need, value, "in"), 1, true) ~= nil
  end
  if kind(container) == "mapping" then return container[value] ~= nil end
  for _, item in ipairs(items_of(need, container, "in")) do
    if values.equal(item, value) then return true end
  end
  return false
end

--- shown(need, value) -> the text that {{ value }} writes.
function M.shown(need, value)
  local what = kind(value)
  if what == "string" then return value end
  if what == "undefined" then return "" end
  if what == "none" then return "None" end
  if what == "boolean" then return value and "True" or "False" end
  if what == "number" then return values.number(value) end
  need(false, "a value of kind %s has no text; templates use tojson for it", what)
end

return M
