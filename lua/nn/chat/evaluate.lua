-- Evaluates the expressions of Jinja templates (expression.lua) in a scope: a table of variables
-- whose metatable leads to the enclosing scope.
local arithmetic = require "nn.chat.numbers"
local builtins = require "nn.chat.builtins"
local checks = require "nn.chat.checks"
local lexer = require "nn.chat.lexer"
local methods = require "nn.chat.methods"
local printf = require "nn.chat.printf"
local steps = require "nn.chat.steps"
local values = require "nn.chat.values"
local writing = require "nn.chat.writing"

local M = {}
local NONE, UNDEFINED = values.NONE, values.UNDEFINED
local kind = values.kind
local evaluators = {}
local escape, tests = builtins.filters.escape, builtins.tests

--- evaluate(node, scope) -> the value of an expression. Errors: what Jinja refuses, and what is not
--- supported, with the line; too many steps in all.
function M.evaluate(node, scope)
  steps.take()
  return evaluators[node.op](node, scope)
end
local evaluate = M.evaluate

-- need(good, text, ...) for a node.
local function needer(node)
  return function(good, text, ...)
    if not good then lexer.fail(node.line, text, ...) end
  end
end

function evaluators.constant(node) return node.value end
function evaluators.none() return NONE end

-- What Jinja defines and this file does not.
local unsupported = {varargs = true, kwargs = true, cycler = true, joiner = true, lipsum = true,
                     self = true}

function evaluators.variable(node, scope)
  local value = scope[node.name]
  if value ~= nil then return value end
  needer(node)(not unsupported[node.name], "'%s' is not supported", node.name)
  return UNDEFINED
end

function evaluators.list(node, scope)
  local list = values.list {}
  for i, item in ipairs(node.items) do list[i] = evaluate(item, scope) end
  return list
end

function evaluators.dict(node, scope)
  local dict = values.dict()
  for i, key in ipairs(node.keys) do
    local name = values.key(evaluate(key, scope))
    needer(node)(name ~= nil, "this value cannot be the key of a dict")
    values.put(dict, name, evaluate(node.values[i], scope))
  end
  return dict
end

function evaluators.tuple(node, scope) return values.tuple(evaluators.list(node, scope)) end

evaluators["not"] = function(node, scope) return not values.is_true(evaluate(node.value, scope)) end

evaluators["and"] = function(node, scope)
  local left = evaluate(node.left, scope)
  if not values.is_true(left) then return left end
  return evaluate(node.right, scope)
end

evaluators["or"] = function(node, scope)
  local left = evaluate(node.left, scope)
  if values.is_true(left) then return left end
  return evaluate(node.right, scope)
end

function evaluators.choice(node, scope)
  if values.is_true(evaluate(node.condition, scope)) then return evaluate(node.yes, scope) end
  return node.no and evaluate(node.no, scope) or not node.no and UNDEFINED or false
end

function evaluators.negative(node, scope)
  local value = evaluate(node.value, scope)
  local good = values.is_numeric(value)
  needer(node)(good, "'-' needs a number, not a value of kind %s", kind(value))
  needer(node)(not values.is_long(value), "a whole number beyond 2^53")
  return values.is_real(value) and values.real(-values.plain(value)) or -values.plain(value)
end

local function defined(node, value, what)
  needer(node)(kind(value) ~= "undefined", "%s of an undefined value%s", what,
               node.left and node.left.name and " '" .. node.left.name .. "'" or "")
  return value
end

local function joined(need, a, b)
  local good = not values.is_view(a) and not values.is_view(b)
  need(good, "dict.keys(), range() and similar cannot be added; apply '| list'")
  need(#a + #b <= values.MOST, "a list of %d elements; %d are possible", #a + #b, values.MOST)
  local list = values.is_tuple(a) and values.tuple {} or values.list {}
  for _, item in ipairs(a) do list[#list + 1] = item end
  for _, item in ipairs(b) do list[#list + 1] = item end
  return list
end

local function appended(need, a, b)
  checks.size(need, #a + #b)
  return a .. b
end

local function combined(need, node, a, b)
  local operator = node.operator
  if operator == "~" then
    return appended(need, writing.shown(need, a), writing.shown(need, b))
  end
  defined(node, a, "'" .. operator .. "'")
  defined(node, b, "'" .. operator .. "'")
  local x, y = kind(a), kind(b)
  if operator == "+" and x == "string" and y == "string" then return appended(need, a, b) end
  if operator == "+" and values.is_list(a) and values.is_list(b) then return joined(need, a, b) end
  if operator == "+" and (x == "markup" and tests.string(need, b)
                          or y == "markup" and x == "string") then
    return values.markup(appended(need, escape(need, a).text, escape(need, b).text))
  end
  if operator == "%" and x == "string" then return printf(need, a, b) end
  if operator == "*" and x == "string" and y == "number" then
    checks.size(need, #a * checks.whole(need, b, "'*' of a text"))
    return a:rep(b)
  end
  local good = values.is_numeric(a) and values.is_numeric(b)
  need(good, "'%s' needs two numbers%s, not values of kind %s and %s", operator,
       operator == "+" and ", two texts or two lists" or "", x, y)
  return arithmetic.calculate(need, operator, a, b)
end

function evaluators.binary(node, scope)
  local a, b = evaluate(node.left, scope), evaluate(node.right, scope)
  return checks.made(needer(node), combined(needer(node), node, a, b))
end

function evaluators.compare(node, scope)
  local operator = node.operator
  local a, b = evaluate(node.left, scope), evaluate(node.right, scope)
  if operator == "==" then return values.equal(a, b) end
  if operator == "!=" then return not values.equal(a, b) end
  if operator == "in" then return builtins.contains(needer(node), b, a) end
  if operator == "not in" then return not builtins.contains(needer(node), b, a) end
  return builtins.ordered(needer(node), operator, a, b)
end

function evaluators.test(node, scope)
  local test = builtins.tests[node.name]
  needer(node)(test, "the test '%s' is not supported", node.name)
  local list = {}
  for i, argument in ipairs(node.list) do list[i] = evaluate(argument, scope) end
  return checks.call(needer(node), node.name, test, evaluate(node.object, scope), list)
end

-- ### Items, slices and calls

local function list_item(list, index)
  local value = list[index < 0 and #list + index + 1 or index + 1]
  if value == nil then return UNDEFINED end
  return value
end

local function method_of(object, name)
  if kind(object) == "markup" then object = object.text end
  local method = methods.find(object, name)
  if not method then return UNDEFINED end
  return function(need, list, named)
    if name == "format" then return checks.made(need, method(need, object, list, named)) end
    local value = checks.call(need, name, method, object, M.by_place(need, name, list, named))
    return kind(object) == "string" and checks.made(need, value) or value
  end
end

-- A value in an object. As in Jinja, x.name finds a method before a value of this name in a dict,
-- and x["name"] after it.
function evaluators.item(node, scope)
  local object, key = evaluate(node.object, scope), evaluate(node.key, scope)
  local what, need = kind(object), needer(node)
  need(what ~= "undefined", "'%s' of an undefined value%s", tostring(key),
       node.object.name and " '" .. node.object.name .. "'" or "")
  need(what ~= "function", "'%s' of a function is not supported", tostring(key))
  if kind(key) == "number" and (what == "string" or values.is_list(object)) then
    return list_item(what == "string" and values.characters(object) or object,
                     checks.whole(need, key, "an index"))
  end
  need(what ~= "markup" or kind(key) ~= "number", "an index of a text of the filter safe")
  key = values.key(key)
  if key == nil then return UNDEFINED end
  local method = kind(key) == "string" and method_of(object, key) or UNDEFINED
  if node.attribute and method ~= UNDEFINED then return method end
  local value
  if values.has_items(object) then value = object[key] end
  if value == nil then return method end
  return value
end

-- Python's bounds of a slice: where it begins, where it ends, its step.
local function bounds_of(node, scope, count)
  local numbers = {}
  for i = 1, 3 do
    local value = node.bounds[i] and evaluate(node.bounds[i], scope)
    if value == NONE then value = nil end
    needer(node)(value == nil or kind(value) == "number", "a slice needs whole numbers")
    numbers[i] = value and checks.whole(needer(node), value, "a slice")
  end
  local step = numbers[3] or 1
  needer(node)(step ~= 0, "the step of a slice is 0")
  local low, high = step > 0 and 0 or -1, step > 0 and count or count - 1
  local function bound(value, default)
    if not value then return default end
    if value < 0 then value = value + count end
    return math.max(low, math.min(high, value))
  end
  return bound(numbers[1], step > 0 and low or high), bound(numbers[2], step > 0 and high or low),
    step
end

function evaluators.slice(node, scope)
  local object = evaluate(node.object, scope)
  local is_text, is_markup = kind(object) == "string", kind(object) == "markup"
  local items = checks.items(needer(node), object, "a slice")
  local first, stop, step = bounds_of(node, scope, #items)
  local out = values.is_tuple(object) and values.tuple {} or values.list {}
  for i = first, step > 0 and stop - 1 or stop + 1, step do out[#out + 1] = items[i + 1] end
  if is_markup then return checks.made(needer(node), values.markup(table.concat(out))) end
  return checks.made(needer(node), is_text and table.concat(out) or out)
end

local function arguments_of(node, scope)
  local list, named = {}, values.dict()
  for i, argument in ipairs(node.list) do list[i] = evaluate(argument, scope) end
  for _, name in ipairs(values.keys(node.named)) do
    values.put(named, name, evaluate(node.named[name], scope))
  end
  return list, named
end

-- The names of the arguments that filters and methods accept by name, with their places.
local places = {
  tojson = {"ensure_ascii", "indent", "separators", "sort_keys"},
  default = {"default_value", "boolean"}, indent = {"width", "first", "blank"},
  join = {"d", "attribute"}, replace = {"old", "new", "count"}, split = {"sep", "maxsplit"},
  rsplit = {"sep", "maxsplit"}, sort = {"reverse", "case_sensitive", "attribute"},
  dictsort = {"case_sensitive", "by", "reverse"}, unique = {"case_sensitive", "attribute"},
  min = {"case_sensitive", "attribute"}, max = {"case_sensitive", "attribute"},
  sum = {"attribute", "start"}, round = {"precision", "method"}, int = {"default"},
  float = {"default"}, trim = {"chars"},
}

--- by_place(need, name, list, named) -> the list with the arguments by name at their places.
function M.by_place(need, name, list, named)
  if name == "map" and named.attribute ~= nil then
    list[1] = {attribute = named.attribute, default = named.default}
    named.attribute, named.default = nil, nil
  end
  for key, value in pairs(named) do
    local found
    for i, place in ipairs(places[name == "d" and "default" or name] or {}) do
      if place == key then
        need(list[i] == nil, "the argument %s= of %s is given twice", key, name)
        list[i], found = value, true
      end
    end
    need(found, "the argument %s= of %s is not supported", key, name)
  end
  return list
end

function evaluators.filter(node, scope)
  local filter, need = builtins.filters[node.name], needer(node)
  need(filter, "the filter '%s' is not supported", node.name)
  local object = evaluate(node.object, scope)
  local list, named = arguments_of(node, scope)
  list = M.by_place(need, node.name, list, named)
  local value = checks.call(need, node.name, filter, object, list)
  return value ~= object and checks.made(need, value) or value
end

function evaluators.call(node, scope)
  local callee, need = node.callee, needer(node)
  local list, named = arguments_of(node, scope)
  local f = evaluate(callee, scope)
  need(type(f) == "function", callee.attribute and "the method '%s' is not supported for this value"
       or "'%s' is not a function that nnlua supports",
       tostring(callee.name or callee.key and callee.key.value or "it"))
  return f(need, list, named)
end

return M
