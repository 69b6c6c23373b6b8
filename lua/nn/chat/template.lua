-- Jinja templates, as far as chat templates need them. render() runs a template: statements.lua
-- parses it, evaluate.lua computes expressions, builtins.lua has the filters and tests, methods.lua
-- the methods of texts, lists and dicts.
local checks = require "nn.chat.checks"
local evaluation = require "nn.chat.evaluate"
local lexer = require "nn.chat.lexer"
local lib = require "nn.base.capi"
local methods = require "nn.chat.methods"
local statements = require "nn.chat.statements"
local steps = require "nn.chat.steps"
local values = require "nn.chat.values"
local writing = require "nn.chat.writing"

local M = {NONE = values.NONE}
local evaluate = evaluation.evaluate
local UNDEFINED = values.UNDEFINED
local LONGEST = values.LONGEST

local function needer(node)
  return function(good, text, ...)
    if not good then lexer.fail(node.line or 1, text, ...) end
  end
end

local function inner(scope) return setmetatable({}, {__index = scope}) end

local runners = {}

-- Runs statements; returns "break" or "continue" if one was reached.
local function run(list, scope, out)
  for _, node in ipairs(list) do
    steps.take()
    local stopped = runners[node.op](node, scope, out)
    if stopped then return stopped end
  end
end

local function write(node, text, out)
  out.size = out.size + #text
  if out.size > LONGEST then lexer.fail(node.line or 1, "the text exceeds %d bytes", LONGEST) end
  out[#out + 1] = text
end

local function captured(node, scope, size)
  local out = {size = size or 0}
  run(node.body, scope, out)
  return checks.made(needer(node), table.concat(out))
end

function runners.text(node, _, out) write(node, node.text, out) end
function runners.output(node, scope, out)
  write(node, writing.shown(needer(node), evaluate(node.value, scope)), out)
end
function runners.block(node, scope, out) return run(node.body, inner(scope), out) end
function runners.filter(node, scope, out)
  node.text.value = captured(node, inner(scope), out.size)
  runners.output(node, scope, out)
end
runners["break"] = function() return "break" end
runners["continue"] = function() return "continue" end

runners["if"] = function(node, scope, out)
  for _, case in ipairs(node.cases) do
    if not case.condition or values.is_true(evaluate(case.condition, scope)) then
      return run(case.body, scope, out)
    end
  end
end

local function assign(node, scope, value)
  if node.field then
    local object = scope[node.names[1]]
    if values.kind(object) ~= "namespace" then
      lexer.fail(node.line, "'%s' is not a namespace", node.names[1])
    end
    checks.field(needer(node), node.field)
    object[node.field] = value
  elseif #node.names == 1 then
    scope[node.names[1]] = value
  else
    if not values.is_list(value) or #value ~= #node.names then
      lexer.fail(node.line, "'set' of %d names needs a list of as many", #node.names)
    end
    for i, name in ipairs(node.names) do scope[name] = value[i] end
  end
end

function runners.set(node, scope) assign(node, scope, evaluate(node.value, scope)) end
function runners.capture(node, scope, out)
  assign(node, scope, captured(node, inner(scope), out.size))
end

-- The variable `loop` for element i.
local function loop_of(items, i)
  local function at(n) return items[n] == nil and UNDEFINED or items[n] end
  return {index = i, index0 = i - 1, depth = 1, depth0 = 0, first = i == 1, last = i == #items,
          length = #items, revindex = #items - i + 1, revindex0 = #items - i, previtem = at(i - 1),
          nextitem = at(i + 1), cycle = function(need, list)
            need(#list > 0, "cycle needs values")
            return list[(i - 1) % #list + 1]
          end}
end

local function bind(node, scope, item)
  if #node.names == 1 then
    scope[node.names[1]] = item
    return
  end
  if not values.is_list(item) or #item ~= #node.names then
    lexer.fail(node.line, "'for' of %d names needs lists of as many", #node.names)
  end
  for i, name in ipairs(node.names) do scope[name] = item[i] end
end

runners["for"] = function(node, scope, out)
  local items = checks.items(needer(node), evaluate(node.list, scope), "'for'")
  if node.filter then
    local kept = values.list {}
    for _, item in ipairs(items) do
      local own = inner(scope)
      bind(node, own, item)
      if values.is_true(evaluate(node.filter, own)) then kept[#kept + 1] = item end
    end
    items = kept
  end
  for i, item in ipairs(items) do
    steps.take()
    local own = inner(scope)
    own.loop = loop_of(items, i)
    bind(node, own, item)
    if run(node.body, own, out) == "break" then break end
  end
  if #items == 0 and node.otherwise then return run(node.otherwise, inner(scope), out) end
end

function runners.macro(node, scope)
  local depth = 0
  scope[node.name] = function(need, list, named)
    need(#list <= #node.parameters, "the macro '%s' has %d parameters", node.name, #node.parameters)
    local own, known = inner(scope), {}
    for i, parameter in ipairs(node.parameters) do
      local value = list[i]
      need(value == nil or named[parameter.name] == nil, "the macro '%s' gets '%s' twice",
           node.name, parameter.name)
      if value == nil then value = named[parameter.name] end
      if value == nil and parameter.default then value = evaluate(parameter.default, own) end
      own[parameter.name] = value == nil and UNDEFINED or value
      known[parameter.name] = true
    end
    for name in pairs(named) do
      need(known[name], "the macro '%s' has no parameter '%s'", node.name, name)
    end
    depth = depth + 1
    need(depth < 100, "the macro '%s' calls itself too often", node.name)
    local text = captured(node, own)
    depth = depth - 1
    return text
  end
end

-- ### Functions

local functions = {}

-- The error for more arguments than a function has, or arguments by name.
local function only(need, who, most, list, named)
  need(#list <= most and next(named) == nil, "%s takes at most %d arguments without names", who,
       most)
end

function functions.raise_exception(need, list, named)
  only(need, "raise_exception", 1, list, named)
  lib.deny("the chat template refuses the conversation: %s", writing.shown(need, list[1]))
end

-- A new dict of a dict or a list of pairs, and of arguments by name.
function functions.dict(need, list, named)
  need(#list <= 1, "dict takes at most one argument without a name")
  local from, out = list[1] == nil and values.dict() or list[1], values.dict()
  if values.is_mapping(from) then from = methods.mapping.items(need, from) end
  for _, pair in ipairs(checks.items(need, from, "dict")) do
    local key
    if values.is_list(pair) and #pair == 2 then key = values.key(pair[1]) end
    need(key ~= nil, "dict needs a dict or a list of pairs of a key and a value")
    values.put(out, key, pair[2])
  end
  for _, name in ipairs(values.keys(named)) do values.put(out, name, named[name]) end
  return out
end

function functions.namespace(need, list, named)
  local out = functions.dict(need, list, named)
  for _, name in ipairs(values.keys(out)) do checks.field(need, name) end
  return values.namespace(out)
end

function functions.range(need, list, named)
  only(need, "range", 3, list, named)
  local first, stop = list[2] and list[1] or 0, list[2] or list[1]
  local step = list[3] or 1
  for _, number in ipairs {first, stop or UNDEFINED, step} do
    need(type(number) == "number" and number % 1 == 0, "range needs 1 to 3 whole numbers")
  end
  need(step ~= 0, "the step of range is 0")
  need(math.abs(stop - first) <= values.MOST, "range from %.0f to %.0f; a difference of %d is "
       .. "possible", first, stop, values.MOST)
  local out = values.view {}
  for i = first, step > 0 and stop - 1 or stop + 1, step do out[#out + 1] = i end
  return checks.made(need, out)
end

function functions.strftime_now(need, list, named)
  only(need, "strftime_now", 1, list, named)
  need(type(list[1]) == "string" and not list[1]:find "^!?%*", "strftime_now needs a format")
  return os.date(list[1])
end

--- render(source, variables) -> the text of a template. Errors: a template that is malformed or
--- that uses something that is not supported, with its line; an error that the template raises.
function M.render(source, variables)
  local scope = inner(functions)
  for name, value in pairs(variables) do scope[name] = value end
  checks.start()
  steps.start()
  local good, text = lib.attempt(captured, {body = statements.parse(source)}, scope)
  if good then return text end
  if type(text) == "string" and text:find("stack overflow", 1, true) then
    lib.deny "the chat template: its calls are nested too deeply"
  end
  error(text, 0)
end

return M
