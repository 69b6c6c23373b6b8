-- Refuses #x of a tensor in typed code. LuaJIT computes # of a table without asking the library;
-- without this check the result would be 0, without an error.
local lexer = require "repl.lexer"
local lib = require "nn.base.capi"
local names = require "repl.names"
local tensor = require "nn.core.tensor"

local M = {}

-- The last token of `name.field[3]` that begins at tokens[i]; nil if the expression is called.
local function end_of(tokens, i)
  while tokens[i + 1] do
    local text = tokens[i + 1].text
    if text == "." then
      i = i + 2
    elseif text == "[" and tokens[i + 3] and tokens[i + 3].text == "]" then
      i = i + 3
    else
      local called = tokens[i + 1].kind == "string" or text:find "^[%(%[:{]$"
      return not called and i or nil
    end
  end
  return i
end

-- The names that the code binds itself, so that a global of this name may not be meant.
local function bound_names(tokens)
  local bound, binding = {}, false
  for i, token in ipairs(tokens) do
    local text, is_name = token.text, token.kind == "name"
    if text == "local" or text == "for" or text == "function" then
      binding = true
    elseif not is_name and not text:find "^[,.:(]$" then
      binding = false
    end
    local assigned = tokens[i + 1] and tokens[i + 1].text == "="
    if is_name and (binding or assigned) then bound[text] = true end
  end
  return bound
end

--- check(code): raises an error if the code takes the length of a global tensor, or of a tensor in
--- a field or list.
function M.check(code)
  local tokens = code:find("#", 1, true) and lexer.code_tokens(code) or {}
  local bound = bound_names(tokens)
  for i, token in ipairs(tokens) do
    local name = tokens[i + 1]
    if token.text == "#" and name and name.kind == "name" and not bound[name.text] then
      local last = end_of(tokens, i + 1)
      if last and tensor.is_tensor(names.value_of(tokens, last)) then
        local text = code:sub(name.from, tokens[last].to)
        lib.misuse("#%s: Lua's # is 0 for every tensor; %s:dim(1) is the number of rows, "
                   .. "%s:count() the number of elements", text, text, text)
      end
    end
  end
end

return M
