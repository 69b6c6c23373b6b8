-- Parses the parts of a Jinja template to a tree of statements: text, output, if, for, set, macro,
-- filter, break, continue. What is not among them is refused.
local expression = require "nn.chat.expression"
local lexer = require "nn.chat.lexer"

local M = {}
local Builder = {}
Builder.__index = Builder

local function starts_with(part, names)
  local token = part.kind == "block" and part.tokens[1]
  return token and names[token.value] and token.value or nil
end

-- Statements up to a block that begins with one of `ends`; returns that name too.
function Builder:body(ends, opened_at)
  local list = {}
  self.depth = self.depth + 1
  if self.depth > 100 then lexer.fail(opened_at, "statements are nested too deeply") end
  while self.parts[self.at] do
    local part = self.parts[self.at]
    local found = starts_with(part, ends)
    self.at = self.at + 1
    if found then
      self.depth = self.depth - 1
      local parser = expression.parser(part.tokens, part.line)
      parser.at = 2
      return list, found, parser
    end
    list[#list + 1] = self:statement(part)
  end
  if next(ends) then
    local names = {}
    for name in pairs(ends) do names[#names + 1] = name end
    table.sort(names)
    lexer.fail(opened_at, "the statement has no '%s'", table.concat(names, "' or '"))
  end
  self.depth = self.depth - 1
  return list
end

local statements = {}

function Builder:statement(part)
  if part.kind == "text" then return {op = "text", text = part.text} end
  local parser = expression.parser(part.tokens, part.line)
  if part.kind == "variable" then
    local node = {op = "output", value = parser:expression(), line = part.line}
    parser:finish()
    return node
  end
  local name = parser:name()
  local build = statements[name]
  if not build then lexer.fail(part.line, "the statement '%s' is not supported", name) end
  return build(self, parser, part.line)
end

statements["if"] = function(self, parser, line)
  local node, ending = {op = "if", cases = {}}, nil
  repeat
    local condition = ending ~= "else" and parser:expression() or nil
    parser:finish()
    local ends = ending == "else" and {endif = true} or {endif = true, ["else"] = true, elif = true}
    local body, found, next_parser = self:body(ends, line)
    node.cases[#node.cases + 1] = {condition = condition, body = body}
    ending, parser = found, next_parser
  until ending == "endif"
  return node
end

local function names_until(parser, word)
  local names = {}
  local brackets = parser:take "("
  repeat names[#names + 1] = parser:name() until not parser:take ","
  if brackets then parser:expect ")" end
  if word then parser:expect(word) end
  return names
end

statements["for"] = function(self, parser, line)
  local node = {op = "for", names = names_until(parser, "in"), line = line}
  node.list = parser:expression(true)
  if parser:take "if" then node.filter = parser:expression() end
  parser:finish()
  self.loops = self.loops + 1
  local ending
  node.body, ending = self:body({endfor = true, ["else"] = true}, line)
  self.loops = self.loops - 1
  if ending == "else" then node.otherwise = self:body({endfor = true}, line) end
  return node
end

function statements.set(self, parser, line)
  local names = names_until(parser)
  local field = parser:take "." and parser:name()
  if parser:take "=" then
    local value = parser:values()
    parser:finish()
    return {op = "set", names = names, field = field, value = value, line = line}
  end
  if #names > 1 then lexer.fail(line, "'set' needs '='") end
  parser:finish()
  return {op = "capture", names = names, field = field, line = line,
          body = (self:body({endset = true}, line))}
end

function statements.macro(self, parser, line)
  local node = {op = "macro", name = parser:name(), parameters = {}, line = line}
  parser:expect "("
  while not parser:take ")" do
    local parameter = {name = parser:name()}
    if parser:take "=" then parameter.default = parser:expression() end
    node.parameters[#node.parameters + 1] = parameter
    if not parser:peek ")" then parser:expect "," end
  end
  parser:finish()
  local loops = self.loops
  self.loops = 0
  node.body = self:body({endmacro = true}, line)
  self.loops = loops
  return node
end

-- Marks what the model generates, for training; it writes what it contains.
function statements.generation(self, parser, line)
  parser:finish()
  return {op = "block", body = (self:body({endgeneration = true}, line))}
end

-- What it contains, as one text, with a chain of filters: "filter trim | upper".
function statements.filter(self, parser, line)
  local text = {op = "constant"}
  local value = parser:filters(text)
  parser:finish()
  return {op = "filter", text = text, value = value, line = line,
          body = (self:body({endfilter = true}, line))}
end

for _, name in ipairs {"break", "continue"} do
  statements[name] = function(self, parser, line)
    parser:finish()
    if self.loops == 0 then lexer.fail(line, "'%s' outside a loop", name) end
    return {op = name}
  end
end

--- parse(source) -> a list of statements. Errors: a template that is malformed or not supported.
function M.parse(source)
  local builder = setmetatable({parts = lexer.parts(source), at = 1, depth = 0, loops = 0}, Builder)
  return (builder:body({}, 1))
end

return M
