-- Parses the expressions of Jinja templates to trees {op=, ...}, in Jinja's order of precedence.
local lexer = require "nn.chat.lexer"
local values = require "nn.chat.values"

local M = {}
local Parser = {}
Parser.__index = Parser

local MOST = 2000                            -- tokens of a tag: trees have a limited depth

--- parser(tokens, line) -> parser of the tokens in a tag.
function M.parser(tokens, line)
  if #tokens > MOST then
    lexer.fail(line, "a tag of %d words and signs; %d are possible", #tokens, MOST)
  end
  return setmetatable({tokens = tokens, at = 1, line = line}, Parser)
end

function Parser:fail(text, ...) lexer.fail(self.line, text, ...) end

function Parser:peek(value, ahead)
  local token = self.tokens[self.at + (ahead or 0)]
  return token ~= nil and token.kind ~= "string" and token.kind ~= "number" and token.value == value
end

function Parser:take(value)
  if not self:peek(value) then return false end
  self.at = self.at + 1
  return true
end

-- A token as a message names it.
local function shown(token)
  if not token then return "the end" end
  return "'" .. (token.kind == "number" and values.number(token.value) or token.value) .. "'"
end

function Parser:expect(value)
  if self:take(value) then return end
  self:fail("'%s' is needed before %s", value, shown(self.tokens[self.at]))
end

function Parser:name()
  local token = self.tokens[self.at]
  if not token or token.kind ~= "name" then self:fail "a name is needed" end
  self.at = self.at + 1
  return token.value
end

--- parser:finish(): raises an error if tokens are left.
function Parser:finish()
  local token = self.tokens[self.at]
  if token then self:fail("%s is not expected here", shown(token)) end
end

-- Arguments until ")": a list, and the named ones.
function Parser:arguments()
  local list, named = {}, values.dict()
  while not self:take ")" do
    local token = self.tokens[self.at]
    if token and token.kind == "name" and self:peek("=", 1) then
      self.at = self.at + 2
      values.put(named, token.value, self:expression())
    else
      list[#list + 1] = self:expression()
    end
    if not self:peek ")" then self:expect "," end
  end
  return list, named
end

function Parser:list(close)
  local items = {}
  while not self:take(close) do
    items[#items + 1] = self:expression()
    if not self:peek(close) then self:expect "," end
  end
  return items
end

function Parser:dict()
  local node = {op = "dict", keys = {}, values = {}, line = self.line}
  while not self:take "}" do
    table.insert(node.keys, self:expression())
    self:expect ":"
    table.insert(node.values, self:expression())
    if not self:peek "}" then self:expect "," end
  end
  return node
end

local constants = {["true"] = true, ["True"] = true, ["false"] = false, ["False"] = false}

function Parser:primary()
  local token = self.tokens[self.at]
  if not token then self:fail "an expression is needed before the end" end
  self.at = self.at + 1
  if token.kind == "string" then
    local text = token.value
    while self.tokens[self.at] and self.tokens[self.at].kind == "string" do
      text = text .. self.tokens[self.at].value
      self.at = self.at + 1
    end
    return {op = "constant", value = text}
  end
  if token.kind == "number" then return {op = "constant", value = token.value} end
  if token.kind == "name" then
    if constants[token.value] ~= nil then
      return {op = "constant", value = constants[token.value]}
    end
    if token.value:lower() == "none" then return {op = "none"} end
    return {op = "variable", name = token.value, line = self.line}
  end
  if token.value == "(" then
    local inner = self:expression()
    if not self:peek "," then
      self:expect ")"
      return inner
    end
    self:expect ","
    return {op = "tuple", items = {inner, unpack(self:list ")")}}
  end
  if token.value == "[" then return {op = "list", items = self:list "]"} end
  if token.value == "{" then return self:dict() end
  self:fail("%s is not expected here", shown(token))
end

function Parser:subscript(object)
  local bounds, slices = {}, false
  for i = 1, 3 do
    if not self:peek ":" and not self:peek "]" then bounds[i] = self:expression() end
    if not self:take ":" then break end
    slices = true
  end
  self:expect "]"
  if slices then return {op = "slice", object = object, bounds = bounds, line = self.line} end
  if not bounds[1] then self:fail "an index is needed" end
  return {op = "item", object = object, key = bounds[1], line = self.line}
end

-- Words that end a test without an argument.
local behind_test = {["and"] = true, ["or"] = true, ["else"] = true, ["is"] = true, ["if"] = true,
                     ["not"] = true, ["in"] = true}

-- Behind "is": the name of a test, with an argument perhaps.
function Parser:test(object)
  local negated = self:take "not"
  local node = {op = "test", object = object, name = self:name(), list = {}, line = self.line}
  local token = self.tokens[self.at]
  if self:take "(" then
    local named
    node.list, named = self:arguments()
    if next(named) then self:fail("an argument by name of the test '%s'", node.name) end
  elseif token and (token.kind == "string" or token.kind == "number" or self:peek "["
                    or token.kind == "name" and not behind_test[token.value]) then
    node.list = {self:postfix(self:primary())}
  end
  return negated and {op = "not", value = node} or node
end

function Parser:postfix(node)
  while true do
    if self:take "." then
      local token = self.tokens[self.at]
      local is_name = not token or token.kind ~= "number"
      if not is_name then self.at = self.at + 1 end
      node = {op = "item", object = node, attribute = is_name, line = self.line,
              key = {op = "constant", value = is_name and self:name() or token.value}}
    elseif self:take "[" then
      node = self:subscript(node)
    elseif self:take "(" then
      local list, named = self:arguments()
      node = {op = "call", callee = node, list = list, named = named, line = self.line}
    else
      return node
    end
  end
end

--- parser:filters(node) -> a value with a chain of filters, without the first "|".
function Parser:filters(node)
  repeat
    local name, list, named = self:name(), {}, values.dict()
    if self:take "(" then list, named = self:arguments() end
    node = {op = "filter", object = node, name = name, list = list, named = named,
            line = self.line}
  until not self:take "|"
  return node
end

-- A value with filters and tests.
function Parser:filtered(node)
  while true do
    if self:take "|" then
      node = self:filters(node)
    elseif self:take "is" then
      node = self:test(node)
    else
      return node
    end
  end
end

-- A value with a sign. As in Jinja, a filter applies to the value with its sign.
function Parser:unary(without_filters)
  local node
  if self:take "-" then
    node = {op = "negative", value = self:unary(true), line = self.line}
  elseif self:take "+" then
    node = {op = "negative", value = self:unary(true), line = self.line}
    node = {op = "negative", value = node, line = self.line}
  else
    node = self:postfix(self:primary())
  end
  return without_filters and node or self:filtered(node)
end

-- Left-associative operators from the strongest to the weakest.
local levels = {{"**"}, {"*", "/", "//", "%"}, {"~"}, {"+", "-"}}

function Parser:binary(level)
  if level == 0 then return self:unary() end
  local left = self:binary(level - 1)
  while true do
    local found
    for _, operator in ipairs(levels[level]) do
      found = found or self:take(operator) and operator
    end
    if not found then return left end
    left = {op = "binary", operator = found, left = left, right = self:binary(level - 1),
            line = self.line}
  end
end

local comparisons = {"==", "!=", "<=", ">=", "<", ">", "in"}

function Parser:comparison()
  local left, chain = self:binary(#levels), nil
  while true do
    local found
    if self:peek "not" and self:peek("in", 1) then
      self.at, found = self.at + 2, "not in"
    else
      for _, operator in ipairs(comparisons) do
        found = found or self:take(operator) and operator
      end
    end
    if not found then return chain or left end
    local right = self:binary(#levels)
    local node = {op = "compare", operator = found, left = left, right = right, line = self.line}
    chain = chain and {op = "and", left = chain, right = node} or node
    left = right
  end
end

function Parser:negation()
  if self:take "not" then return {op = "not", value = self:negation()} end
  return self:comparison()
end

function Parser:conjunction()
  local left = self:negation()
  while self:take "and" do left = {op = "and", left = left, right = self:negation()} end
  return left
end

function Parser:disjunction()
  local left = self:conjunction()
  while self:take "or" do left = {op = "or", left = left, right = self:conjunction()} end
  return left
end

--- parser:expression(plain) -> tree. plain: without "a if b else c", as behind "in" of a loop.
function Parser:expression(plain)
  self.depth = (self.depth or 0) + 1
  if self.depth > 100 then self:fail "it is nested too deeply" end
  local value = self:disjunction()
  while not plain and self:take "if" do
    local condition = self:disjunction()
    value = {op = "choice", condition = condition, yes = value,
             no = self:take "else" and self:expression() or nil}
  end
  self.depth = self.depth - 1
  return value
end

--- parser:values() -> tree of a value, or of a tuple "a, b".
function Parser:values()
  local items, is_tuple = {}, false
  repeat
    items[#items + 1] = self:expression()
    local more = self:take ","
    is_tuple = is_tuple or more
  until not more or not self.tokens[self.at]
  return is_tuple and {op = "tuple", items = items} or items[1]
end

return M
