-- Colours for Lua while it is typed: which style each token has, and which brackets belong
-- together.
local lexer = require "repl.lexer"

local M = {}

M.styles = {keyword = "35", string = "32", number = "36", comment = "2", bracket = "1;4",
            match = "7", hint = "2", prompt = "1;32", help = "1;33", shell = "1;31",
            command = "1;36", error = "31", note = "2"}

local pairs_of = {[")"] = "(", ["]"] = "[", ["}"] = "{"}
local opening = {["("] = true, ["["] = true, ["{"] = true}

-- The bracket that the cursor is at (the one before it first), and its partner: two offsets.
local function partners(tokens, at)
  local stack, found = {}, nil
  for _, token in ipairs(tokens) do
    if token.kind == "operator" and opening[token.text] then
      stack[#stack + 1] = token
    elseif token.kind == "operator" and pairs_of[token.text] then
      local open = table.remove(stack)
      if open and open.text == pairs_of[token.text] then
        if token.to == at or open.to == at then return open.from, token.from end
        if token.from == at + 1 or open.from == at + 1 then found = {open.from, token.from} end
      end
    end
  end
  if found then return found[1], found[2] end
end

--- spans(text, at) -> list of {from=, to=, style=}, in order, without overlaps: bytes from 1.
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
