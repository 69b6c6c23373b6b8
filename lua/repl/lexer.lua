-- Lua's tokens in text that may be unfinished, for highlighting, indentation, completion and kept
-- locals. Never fails: a character that starts no token has the kind "other".
local M = {}

M.keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat
               return then true until while]]):gmatch "%a+" do M.keywords[word] = true end

-- The end of a long bracket that opens at `at` with `level` equals signs, and whether it is closed.
local function long_end(text, at, level)
  local _, last = text:find("]" .. ("="):rep(level) .. "]", at, true)
  return last or #text, last ~= nil
end

-- The end of a quoted string (its quote, or the end of its line), and whether it is closed. "\"
-- escapes any character, a newline too.
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

-- The kind of the token at `at`, its last byte, and for strings and comments whether it is closed.
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

--- tokens(text) -> list of {kind=, from=, to=, text=, closed=} that covers the whole text. Kinds:
--- space, name, keyword, number, string, comment, operator, other. `closed` is false for a string
--- or comment that continues after the end.
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

--- code_tokens(text) -> the tokens that are neither space nor comment, and the last of any kind.
function M.code_tokens(text)
  local list, last = {}, nil
  for _, token in ipairs(M.tokens(text)) do
    if token.kind ~= "space" and token.kind ~= "comment" then list[#list + 1] = token end
    last = token
  end
  return list, last
end

local keyword_change = {["do"] = 1, ["function"] = 1, ["if"] = 1, ["repeat"] = 1, ["end"] = -1,
                        ["until"] = -1}
local bracket_change = {["("] = 1, ["{"] = 1, ["["] = 1, [")"] = -1, ["}"] = -1, ["]"] = -1}

--- bracket_change(token) -> 1 for an opening bracket, -1 for a closing one, else 0.
function M.bracket_change(token)
  return token.kind == "operator" and bracket_change[token.text] or 0
end

--- depth_change(token) -> 1 where a block or bracket opens, -1 where one closes, else 0.
function M.depth_change(token)
  return token.kind == "keyword" and keyword_change[token.text] or M.bracket_change(token)
end

return M
