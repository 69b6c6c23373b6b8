-- The indentation of blocks while they are typed.
local lexer = require "repl.lexer"
local text_of = require "repl.text"

local M = {}

M.step = 2
local closing = {["end"] = true, ["else"] = true, ["elseif"] = true, ["until"] = true,
                 ["}"] = true, [")"] = true, ["]"] = true}

local function indent_at(text, at)
  return #text:match("^[ \t]*", text_of.line_start(text, at) + 1)
end

-- The indentation of the innermost block that is open at the end of the text.
local function open_block(text)
  local stack = {}
  for _, token in ipairs(lexer.tokens(text)) do
    local change = lexer.depth_change(token)
    if change > 0 then
      stack[#stack + 1] = indent_at(text, token.from - 1)
    elseif change < 0 then
      stack[#stack] = nil
    end
  end
  return stack[#stack]
end

--- new_line(text, at) -> the number of spaces that begin a line inserted at offset `at`.
function M.new_line(text, at)
  local depth = 0
  local tokens = lexer.code_tokens(text:sub(text_of.line_start(text, at) + 1, at))
  for i, token in ipairs(tokens) do
    local change = lexer.depth_change(token)
    if i > 1 or change > 0 then depth = depth + change end    -- a closing first token opens nothing
  end
  local first = tokens[1] and tokens[1].text
  local reopens = (first == "else" or first == "elseif") and depth >= 0
  return indent_at(text, at) + ((depth > 0 or reopens) and M.step or 0)
end

--- close(text, at) -> text, at. A line around `at` that starts with `end`, `else`, "}" and the like
--- moves left, to the indentation of the block that it closes.
function M.close(text, at)
  local start = text_of.line_start(text, at)
  local space, word = text:match("^([ \t]*)(%a*)", start + 1)
  if word == "" then word = text:sub(start + #space + 1, start + #space + 1) end
  local wanted = closing[word] and open_block(text:sub(1, start))
  if not wanted or wanted >= #space then return text, at end
  return text:sub(1, start + wanted) .. text:sub(start + #space + 1),
    math.max(start, at - #space + wanted)
end

return M
