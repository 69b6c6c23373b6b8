-- The filters and tests that chat templates use. Each gets need(good, text, ...), which raises an
-- error of the template.
local checks = require "nn.chat.checks"
local methods = require "nn.chat.methods"
local numbers = require "nn.chat.numbers"
local printf = require "nn.chat.printf"
local steps = require "nn.chat.steps"
local values = require "nn.chat.values"
local writing = require "nn.chat.writing"

local M = {filters = {}, tests = {}}
local filters, tests = M.filters, M.tests
local NONE, UNDEFINED = values.NONE, values.UNDEFINED
local kind, shown, items_of, whole = values.kind, writing.shown, checks.items, checks.whole

local function or_undefined(value)
  if value == nil then return UNDEFINED end
  return value
end

-- ### Filters of texts, which take other values as {{ value }} writes them

for _, name in ipairs {"upper", "lower", "capitalize"} do
  filters[name] = function(need, value) return methods.string[name](need, shown(need, value)) end
end
function filters.trim(need, value, set)
  return methods.string.strip(need, shown(need, value), set)
end
function filters.title(need, value)
  local text = checks.ascii(need, shown(need, value), "title")
  return (text:gsub("[^-%s({%[<]+", function(word)
    return word:sub(1, 1):upper() .. word:sub(2):lower()
  end))
end
function filters.replace(need, value, from, to, count)
  return methods.string.replace(need, shown(need, value), shown(need, from), shown(need, to), count)
end
function filters.string(need, value) return shown(need, value) end
function filters.safe(need, value) return values.markup(shown(need, value)) end
local escapes = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ["'"] = "&#39;", ['"'] = "&#34;"}
function filters.escape(need, value)
  if kind(value) == "markup" then return value end
  return values.markup((shown(need, value):gsub("[&<>'\"]", escapes)))
end
filters.e = filters.escape
function filters.format(need, value, ...)
  need(kind(value) ~= "markup", "format of a text of the filter safe")
  return printf(need, shown(need, value), values.tuple {...})
end
function filters.indent(need, value, width, first, blank_lines)
  width = width == nil and 4 or width
  if kind(width) ~= "string" then
    need(whole(need, width, "indent") >= 0 and width <= 100, "indent needs a width of 0 to 100")
    width = (" "):rep(width)
  end
  local lines = methods.string.splitlines(need, checks.text(need, value, "indent") .. "\n")
  checks.size(need, #value + #lines * #width)
  for i = 1, #lines do
    local is_indented = values.is_true(first)
    if i > 1 then is_indented = lines[i] ~= "" or values.is_true(blank_lines) end
    if is_indented then lines[i] = width .. lines[i] end
  end
  return table.concat(lines, "\n")
end

-- ### Filters of lists and dicts

function filters.list(need, value)
  local out = values.list {}
  for i, item in ipairs(items_of(need, value, "list")) do out[i] = item end
  return out
end
function filters.length(need, value)
  need(not values.is_lazy(value), "length needs a list; the filter list makes one")
  return #items_of(need, value, "length")
end
filters.count = filters.length
function filters.first(need, value) return or_undefined(items_of(need, value, "first")[1]) end
function filters.last(need, value)
  local items = items_of(need, value, "last")
  return or_undefined(items[#items])
end
function filters.reverse(need, value)
  local items, out = items_of(need, value, "reverse"), values.lazy {}
  for i = #items, 1, -1 do out[#out + 1] = items[i] end
  return kind(value) == "string" and table.concat(out) or out
end
function filters.items(need, value)
  if kind(value) == "undefined" then return values.lazy {} end
  return values.lazy(methods.mapping.items(need, checks.mapping(need, value, "items")))
end

-- The value at a path of attributes: a name, a place in a list from 0, or several as "a.b.0".
local function attribute_of(need, value, path)
  need(kind(path) == "string" or kind(path) == "number", "an attribute of kind %s", kind(path))
  for part in tostring(path):gmatch "[^.]+" do
    need(kind(value) ~= "undefined", "'%s' of an undefined value", part)
    local place = part:match "^%d+$"
    local key = place and values.is_list(value) and tonumber(place) + 1 or part
    if values.has_items(value) then value = or_undefined(value[key]) else value = UNDEFINED end
  end
  return value
end

function filters.join(need, value, separator, attribute)
  local out, size = {}, 0
  separator = separator == nil and "" or checks.text(need, separator, "join")
  for i, item in ipairs(items_of(need, value, "join")) do
    if attribute ~= nil then item = attribute_of(need, item, attribute) end
    out[i] = shown(need, item)
    size = size + #out[i] + #separator
  end
  checks.size(need, size)
  return table.concat(out, separator)
end

-- What items are sorted and compared by: numbers, or texts, by default without regard to case.
local function sort_key(need, item, attribute, with_case, who)
  if attribute ~= nil then item = attribute_of(need, item, attribute) end
  local number = values.plain(item)
  if kind(item) == "number" then
    need(number == number, "%s of a value that is not a number", who)
    return number
  end
  checks.text(need, item, who)
  return values.is_true(with_case) and item or checks.ascii(need, item, who):lower()
end

-- The items of a list in order; equal ones keep theirs.
local function sorted(need, list, reverse, key)
  local rows = {}
  for i, item in ipairs(list) do
    rows[i] = {item = item, key = key(item), at = i}
    need(type(rows[i].key) == type(rows[1].key), "a list of texts and numbers cannot be sorted")
  end
  table.sort(rows, function(a, b)
    if a.key == b.key then return a.at < b.at end
    if values.is_true(reverse) then return a.key > b.key end
    return a.key < b.key
  end)
  local out = values.list {}
  for i, row in ipairs(rows) do out[i] = row.item end
  return out
end

function filters.sort(need, value, reverse, with_case, attribute)
  return sorted(need, items_of(need, value, "sort"), reverse, function(item)
    return sort_key(need, item, attribute, with_case, "sort")
  end)
end
function filters.dictsort(need, value, with_case, by, reverse)
  need(by == nil or by == "key" or by == "value", "dictsort needs by='key' or by='value'")
  local place = by == "value" and 2 or 1
  return sorted(need, filters.items(need, value), reverse, function(pair)
    return sort_key(need, pair[place], nil, with_case, "dictsort")
  end)
end
function filters.unique(need, value, with_case, attribute)
  local out, known = values.lazy {}, {}
  for _, item in ipairs(items_of(need, value, "unique")) do
    local key = sort_key(need, item, attribute, with_case, "unique")
    if not known[key] then out[#out + 1], known[key] = item, true end
  end
  return out
end
function filters.min(need, value, with_case, attribute)
  return filters.first(need, filters.sort(need, value, false, with_case, attribute))
end
function filters.max(need, value, with_case, attribute)
  return filters.first(need, filters.sort(need, value, true, with_case, attribute))
end

local function selected(need, list, wanted, attribute, name, argument)
  local out = values.lazy {}
  local test = tests[name or "truthy"]
  need(test, "the test '%s' is not supported", tostring(name))
  if not values.is_true(list) then return out end
  for _, item in ipairs(items_of(need, list, "select")) do
    local value = item
    if attribute ~= nil then value = attribute_of(need, item, attribute) end
    if checks.call(need, name or "truthy", test, value, {argument}) == wanted then
      out[#out + 1] = item
    end
  end
  return out
end

function filters.selectattr(need, list, attribute, name, argument)
  need(attribute ~= nil, "selectattr needs an attribute")
  return selected(need, list, true, attribute, name, argument)
end
function filters.rejectattr(need, list, attribute, name, argument)
  need(attribute ~= nil, "rejectattr needs an attribute")
  return selected(need, list, false, attribute, name, argument)
end
function filters.select(need, list, name, argument)
  return selected(need, list, true, nil, name, argument)
end
function filters.reject(need, list, name, argument)
  return selected(need, list, false, nil, name, argument)
end
function filters.map(need, list, name, a, b, c)
  local out = values.lazy {}
  if not values.is_true(list) then return out end
  for i, item in ipairs(items_of(need, list, "map")) do
    if type(name) == "table" then
      out[i] = attribute_of(need, item, name.attribute)
      if out[i] == UNDEFINED and name.default ~= nil then out[i] = name.default end
    else
      need(filters[name], "the filter '%s' is not supported", tostring(name))
      out[i] = checks.call(need, name, filters[name], item, {a, b, c})
    end
  end
  return out
end

-- ### Filters of numbers and of any value

function filters.default(_, value, default, also_false)
  if kind(value) == "undefined" or values.is_true(also_false) and not values.is_true(value) then
    return default == nil and "" or default
  end
  return value
end
filters.d = filters.default

-- The number that a value or a text has, or nil.
local function numeric(need, value, who)
  need(kind(value) ~= "undefined", "%s of an undefined value", who)
  if kind(value) == "boolean" then return value and 1 or 0 end
  if kind(value) == "number" then return values.plain(value) end
  local text = kind(value) == "string" and values.strip(value, true, true) or ""
  local word = text:lower():match "^[-+]?(%a+)$"
  need(word ~= "inf" and word ~= "infinity" and word ~= "nan", "%s of '%s' is not supported", who,
       text)
  text = text:gsub("(%d)_%f[%d]", "%1")
  return text:find "^[-+]?[%d.]+[eE]?[-+]?%d*$" and tonumber(text) or nil
end

function filters.int(need, value, default)
  if values.is_long(value) then return value end
  local number = numeric(need, value, "int")
  if not number or number ~= number then return default == nil and 0 or default end
  need(math.abs(number) < 2 ^ 53, "int of a number beyond 2^53")
  return number < 0 and math.ceil(number) or math.floor(number)
end
function filters.float(need, value, default)
  local number = numeric(need, value, "float")
  if not number then return default == nil and values.real(0) or default end
  return values.real(number)
end
function filters.round(need, value, precision, method)
  need(kind(value) == "number", "round needs a number")
  precision = precision == nil and 0 or whole(need, precision, "round")
  return numbers.round(need, value, precision, method)
end
function filters.abs(need, value)
  need(kind(value) == "number" and not values.is_long(value), "abs needs a number up to 2^53")
  local number = math.abs(values.plain(value))
  return values.is_real(value) and values.real(number) or number
end
function filters.sum(need, value, attribute, start)
  local total = start == nil and 0 or start
  need(values.is_numeric(total), "sum needs a start that is a number")
  for _, item in ipairs(items_of(need, value, "sum")) do
    if attribute ~= nil then item = attribute_of(need, item, attribute) end
    need(values.is_numeric(item), "sum needs numbers")
    total = numbers.calculate(need, "+", total, item)
  end
  return total
end

function filters.tojson(need, value, ascii, indent, separators, sorted_names)
  if indent == NONE then indent = nil end
  if indent ~= nil and kind(indent) ~= "string" then
    local width = whole(need, indent, "tojson")
    need(width >= 0 and width <= 100, "tojson needs an indent of 0 to 100")
    indent = (" "):rep(width)
  end
  need(not indent or #indent <= 100, "tojson needs an indent of at most 100 bytes")
  if separators == NONE then separators = nil end
  separators = items_of(need, separators or values.list {indent and "," or ", ", ": "}, "tojson")
  local text, problem = writing.json(value, {
    need = need, comma = checks.text(need, separators[1], "tojson"), indent = indent,
    colon = checks.text(need, separators[2], "tojson"), ascii = values.is_true(ascii),
    sorted = values.is_true(sorted_names)})
  need(text, "tojson of a value of kind %s", problem)
  return text
end

-- ### Tests

function tests.truthy(_, value) return values.is_true(value) end
function tests.defined(_, value) return kind(value) ~= "undefined" end
function tests.undefined(_, value) return kind(value) == "undefined" end
function tests.none(_, value) return kind(value) == "none" end
function tests.string(_, value) return kind(value) == "string" or kind(value) == "markup" end
function tests.number(_, value) return kind(value) == "number" or kind(value) == "boolean" end
function tests.integer(_, value) return kind(value) == "number" and not values.is_real(value) end
function tests.float(_, value) return kind(value) == "number" and values.is_real(value) end
function tests.boolean(_, value) return kind(value) == "boolean" end
function tests.callable(_, value) return kind(value) == "function" end
function tests.mapping(_, value) return values.is_mapping(value) end
function tests.iterable(_, value)
  return values.is_list(value) or values.is_mapping(value) or kind(value) == "undefined"
    or tests.string(nil, value)
end
function tests.sequence(_, value)
  return tests.iterable(nil, value) and not values.is_view(value)
end
tests["true"] = function(_, value) return value == true end
tests["false"] = function(_, value) return value == false end
function tests.equalto(_, value, other) return values.equal(value, other) end
tests.eq = tests.equalto
tests["=="] = tests.equalto
function tests.ne(_, value, other) return not values.equal(value, other) end
tests["!="] = tests.ne
for operator, names in pairs {["<"] = {"lt", "lessthan"}, ["<="] = {"le"}, [">="] = {"ge"},
                              [">"] = {"gt", "greaterthan"}} do
  tests[operator] = function(need, value, other) return M.ordered(need, operator, value, other) end
  for _, name in ipairs(names) do tests[name] = tests[operator] end
end
function tests.sameas(_, value, other)
  return rawequal(value, other) or kind(value) == "none" and kind(other) == "none"
end
function tests.lower(need, value) return methods.string.islower(need, shown(need, value)) end
function tests.upper(need, value) return methods.string.isupper(need, shown(need, value)) end
function tests.odd(need, value) return whole(need, value, "odd") % 2 == 1 end
function tests.even(need, value) return whole(need, value, "even") % 2 == 0 end
function tests.divisibleby(need, value, by)
  return whole(need, value, "divisibleby") % whole(need, by, "divisibleby") == 0
end
tests["in"] = function(need, value, list) return M.contains(need, list, value) end

local orders = {
  ["<"] = function(a, b) return a < b end, ["<="] = function(a, b) return a <= b end,
  [">"] = function(a, b) return a > b end, [">="] = function(a, b) return a >= b end,
}

--- ordered(need, operator, a, b) -> whether two numbers or two texts are in this order.
function M.ordered(need, operator, a, b)
  local good = values.is_numeric(a) and values.is_numeric(b)
    or kind(a) == "string" and kind(b) == "string"
  need(good, "'%s' of values of kind %s and %s", operator, kind(a), kind(b))
  need(not values.is_long(a) and not values.is_long(b), "'%s' of numbers beyond 2^53", operator)
  return orders[operator](values.plain(a), values.plain(b))
end

--- contains(need, container, value) -> whether `value` is in a text, a list or a dict.
function M.contains(need, container, value)
  if kind(container) == "markup" then container = container.text end
  if kind(value) == "markup" then value = value.text end
  if kind(container) == "string" then
    steps.read(container)
    return container:find(checks.text(need, value, "in"), 1, true) ~= nil
  end
  if kind(container) == "mapping" then
    local key = values.key(value)
    return key ~= nil and container[key] ~= nil
  end
  for _, item in ipairs(items_of(need, container, "in")) do
    if values.equal(item, value) then return true end
  end
  return false
end

return M
