-- Colours for Lua while it is typed: the style of each token, and the bracket pair at the cursor.
local lexer = require "repl.lexer"

local M = {}

M.styles = {keyword = "35", string = "32", number = "36", comment = "2", bracket = "1;4",
            match = "7", prompt = "1;32", help = "1;33", shell = "1;31",
            command = "1;36", note = "2"}

local opener_of = {[")"] = "(", ["]"] = "[", ["}"] = "{"}

-- Offsets of the bracket at the cursor (the one before it first) and of its partner.
local function partners(tokens, at)
  local stack, first, second = {}, nil, nil
  for _, token in ipairs(tokens) do
    local change = lexer.bracket_change(token)
    local open = change < 0 and table.remove(stack)
    if change > 0 then stack[#stack + 1] = token end
    if open and open.text == opener_of[token.text] then
      if token.to == at or open.to == at then return open.from, token.from end
      if token.from == at + 1 or open.from == at + 1 then first, second = open.from, token.from end
    end
  end
  return first, second
end

--- spans(text, at) -> list of {from=, to=, style=} in order, without overlaps; bytes from 1.
function M.spans(text, at)
  local list, tokens = {}, lexer.tokens(text)
  local first, second = partners(tokens, at)
  for _, token in ipairs(tokens) do
    local style = M.styles[token.kind]
    if token.from == first or token.from == second then style = M.styles.bracket end
    if style then list[#list + 1] = {from = token.from, to = token.to, style = style} end
  end
  return list
end

return M
