-- Refuses #x of a tensor in typed code. LuaJIT computes # of a table without asking the library, so
-- that it would be 0, without an error.
local lexer = require "repl.lexer"
local lib = require "nn.base.capi"
local tensor = require "nn.core.tensor"

local M = {}

-- The value of `name.field[3]` at tokens[i], read without calling any code, and the index of the
-- token behind it; nil if it calls a function or has another index.
local function value_at(tokens, i)
  local value = rawget(_G, tokens[i].text)
  i = i + 1
  while tokens[i] and (tokens[i].kind == "string" or tokens[i].text:find "^[%.%[%(:{]$") do
    local key, is_field = tokens[i + 1], tokens[i].text == "."
    local closed = is_field or tokens[i + 2] and tokens[i + 2].text == "]"
    local good = tokens[i].text:find "^[%.%[]$" and key and closed
      and key.kind == (is_field and "name" or "number")
    if not good or type(value) ~= "table" then return nil end
    local index = is_field and key.text or tonumber(key.text)
    if not (tensor.is_tensor(value) and not is_field) then value = rawget(value, index) end
    i = i + (is_field and 2 or 3)
  end
  return value, i
end

--- check(code): raises an error if the code takes the length of a global tensor, or of a tensor in
--- a field or list.
function M.check(code)
  local tokens = code:find("#", 1, true) and lexer.code_tokens(code) or {}
  for i, token in ipairs(tokens) do
    if token.text == "#" and tokens[i + 1] and tokens[i + 1].kind == "name" then
      local value, last = value_at(tokens, i + 1)
      if tensor.is_tensor(value) then
        local name = code:sub(tokens[i + 1].from, tokens[last - 1].to)
        lib.misuse("#%s: Lua's # is 0 for every tensor; %s:dim(1) is the number of its rows, "
                   .. "%s:count() of its elements", name, name, name)
      end
    end
  end
end

return M
