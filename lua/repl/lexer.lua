-- Lua's tokens in a text that may be unfinished: for colours, indentation, completion, and locals
-- that stay. Never fails: what is no token is one character of kind "other".
local M = {}

M.keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat
               return then true until while]]):gmatch "%a+" do M.keywords[word] = true end

-- The end of a long bracket that opens at `at` with so many equals signs, and whether it is there.
local function long_end(text, at, level)
  local _, last = text:find("]" .. ("="):rep(level) .. "]", at, true)
  return last or #text, last ~= nil
end

-- The end of a quoted string: behind its quote, or at the end of its line. "\" takes a character
-- along, a line's end too.
local function quote_end(text, at)
  local quote, i = text:sub(at, at), at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == quote then return i, true end
    if c == "\n" then return i - 1, false end
    i = i + (c == "\\" and 2 or 1)
  end
  return #text, false
end

-- The kind of what starts at `at`, where it ends, and for strings and comments whether they do.
local function token_at(text, at)
  local c = text:sub(at, at)
  if c:find "%s" then return "space", select(2, text:find("^%s+", at)), true end
  if c:find "[%a_]" then
    local last = select(2, text:find("^[%w_]+", at))
    return M.keywords[text:sub(at, last)] and "keyword" or "name", last, true
  end
  if text:find("^%.?%d", at) then
    local _, last = text:find("^0[xX][%x.]*[pP]?[+-]?%w*", at)
    if not last then _, last = text:find("^[%d.]+[eE][+-]?%w*", at) end
    return "number", last or select(2, text:find("^[%w.]+", at)), true
  end
  local comment, equals = text:match("^(%-%-)%[(=*)%[", at)
  if comment then return "comment", long_end(text, at, #equals) end
  if text:find("^%-%-", at) then return "comment", (text:find("\n", at, true) or #text + 1) - 1 end
  equals = text:match("^%[(=*)%[", at)
  if equals then return "string", long_end(text, at, #equals) end
  if c == '"' or c == "'" then return "string", quote_end(text, at) end
  local _, last = text:find("^%.%.%.?", at)
  if not last then _, last = text:find("^[=~<>]=", at) end
  return c:find "[%p]" and "operator" or "other", last or at, true
end

--- tokens(text) -> list of {kind=, from=, to=, text=, closed=} that cover the whole text. Kinds:
--- space, name, keyword, number, string, comment, operator, other. `closed` is false for a string
--- or comment that goes on behind the end.
function M.tokens(text)
  local list, at = {}, 1
  while at <= #text do
    local kind, last, closed = token_at(text, at)
    list[#list + 1] = {kind = kind, from = at, to = last, text = text:sub(at, last),
                       closed = closed or false}
    at = last + 1
  end
  return list
end

local opens = {["do"] = 1, ["function"] = 1, ["if"] = 1, ["repeat"] = 1, ["("] = 1, ["{"] = 1,
               ["["] = 1, ["end"] = -1, ["until"] = -1, [")"] = -1, ["}"] = -1, ["]"] = -1}

--- depth_change(token) -> 1 where a block or bracket opens, -1 where one closes, else 0.
function M.depth_change(token)
  local counts = token.kind == "keyword" or token.kind == "operator"
  return counts and opens[token.text] or 0
end

--- without_space(tokens) -> the same without spaces and comments.
function M.without_space(tokens)
  local list = {}
  for _, token in ipairs(tokens) do
    if token.kind ~= "space" and token.kind ~= "comment" then list[#list + 1] = token end
  end
  return list
end

return M
