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
      local value, last = value_at(tokens, i + 1)
      if tensor.is_tensor(value) then
        local text = code:sub(name.from, tokens[last - 1].to)
        lib.misuse("#%s: Lua's # is 0 for every tensor; %s:dim(1) is the number of rows, "
                   .. "%s:count() the number of elements", text, text, text)
      end
    end
  end
end

return M
