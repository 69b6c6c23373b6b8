-- How far the lines of a block are moved to the right while it is being typed.
local lexer = require "repl.lexer"
local text_of = require "repl.text"

local M = {}

M.step = 2
local closing = {["end"] = true, ["else"] = true, ["elseif"] = true, ["until"] = true,
                 ["}"] = true, [")"] = true, ["]"] = true}

local function indent_at(text, at)
  local start = text_of.line_start(text, at)
  return #text:match("^[ \t]*", start + 1)
end

-- Indentation of the lines whose blocks are open at the end of the text, outermost first.
local function open_blocks(text)
  local stack = {}
  for _, token in ipairs(lexer.tokens(text)) do
    local change = lexer.depth_change(token)
    if change > 0 then
      stack[#stack + 1] = indent_at(text, token.from - 1)
    elseif change < 0 then
      stack[#stack] = nil
    end
  end
  return stack
end

--- new_line(text, at) -> how many spaces a line starts with that begins behind the offset `at`.
function M.new_line(text, at)
  local start = text_of.line_start(text, at)
  local line, depth = text:sub(start + 1, at), 0
  local tokens = lexer.without_space(lexer.tokens(line))
  for i, token in ipairs(tokens) do
    local change = lexer.depth_change(token)
    if i > 1 or change > 0 then depth = depth + change end    -- a closing first token opens nothing
  end
  local first = tokens[1] and tokens[1].text
  local again = (first == "else" or first == "elseif") and depth >= 0
  return indent_at(text, at) + ((depth > 0 or again) and M.step or 0)
end

--- close(text, at) -> text, at: the line around `at` moved to the left, under the block that it
--- closes, if it starts with `end`, `else`, "}" and the like and stands further right.
function M.close(text, at)
  local start = text_of.line_start(text, at)
  local space, word = text:match("^([ \t]*)(%a*)", start + 1)
  if word == "" then word = text:sub(start + #space + 1, start + #space + 1) end
  local blocks = open_blocks(text:sub(1, start))
  local wanted = blocks[#blocks]
  if not closing[word] or not wanted or wanted >= #space then return text, at end
  local moved = #space - wanted
  return text:sub(1, start + wanted) .. text:sub(start + #space + 1), math.max(start, at - moved)
end

return M
