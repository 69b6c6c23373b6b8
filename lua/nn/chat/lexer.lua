-- Cuts a Jinja template into text, expressions {{ }} and statements {% %}, and their insides into
-- tokens. White space around tags is removed as transformers sets up Jinja: trim_blocks and
-- lstrip_blocks.
local lib = require "nn.base.capi"
local utf8 = require "nn.base.utf8"
local values = require "nn.chat.values"

local M = {}

function M.fail(line, text, ...)
  lib.deny("the chat template, line %d: " .. text, line, ...)
end

local escapes = {n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", v = "\v", a = "\a",
                 ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = ""}
local code_digits = {x = 2, u = 4, U = 8}

-- The value of a string literal between quotes.
local function unescaped(text, line)
  return (text:gsub("\\(.)(%x*)", function(c, digits)
    local count = code_digits[c]
    local code = count and #digits >= count and tonumber(digits:sub(1, count), 16)
    if code and code <= 0x10FFFF and not (code >= 0xD800 and code < 0xE000) then
      return utf8.encode(code) .. digits:sub(count + 1)
    end
    if not escapes[c] and c:find "[%w\128-\255]" then
      M.fail(line, "the escape \\%s is not supported", c)
    end
    return (escapes[c] or "\\" .. c) .. digits            -- other signs keep their backslash
  end))
end

local operators = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "=", "(",
                   ")", "[", "]", "{", "}", ",", ":", ".", "|", "~"}

local function operator_at(text, at)
  for _, operator in ipairs(operators) do
    if text:sub(at, at + #operator - 1) == operator then return operator end
  end
end

-- The end of the string literal that begins at text[at].
local function string_end(text, at, line)
  local quote, stop = text:sub(at, at), at + 1
  while text:sub(stop, stop) ~= quote do
    if stop > #text then M.fail(line, "a string has no end") end
    stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
  end
  return stop
end

-- The next token of an inside: {kind="name", "string", "number" or "operator", value=}, its end.
local function token_at(text, at, line)
  local name = text:match("^[%a_][%w_]*", at)
  if name then return {kind = "name", value = name, line = line}, at + #name end
  local digits = text:match("^%d[%d_]*", at)
  if digits then
    local rest = text:match("^%.%d+[eE][-+]?%d+", at + #digits)
      or text:match("^%.%d+", at + #digits) or text:match("^[eE][-+]?%d+", at + #digits) or ""
    local plain = digits:gsub("_", "")
    local number = tonumber(plain .. rest)
    if not number then M.fail(line, "the number %s is not possible", digits .. rest) end
    local value = rest == "" and values.whole(plain) or values.real(number)
    return {kind = "number", value = value, line = line}, at + #digits + #rest
  end
  if text:find("^[\"']", at) then
    local stop = string_end(text, at, line)
    return {kind = "string", value = unescaped(text:sub(at + 1, stop - 1), line), line = line},
      stop + 1
  end
  local operator = operator_at(text, at)
  if not operator then M.fail(line, "the sign '%s' is not supported", text:sub(at, at)) end
  return {kind = "operator", value = operator, line = line}, at + #operator
end

local closers = {["{{"] = "}}", ["{%"] = "%}"}
local brackets = {["("] = 1, ["["] = 1, ["{"] = 1, [")"] = -1, ["]"] = -1, ["}"] = -1}

-- The tokens from text[at] on until the closing mark; the position behind it, the sign before it.
local function inside(source, at, closer, line)
  local tokens, depth = {}, 0
  while true do
    local space = source:match("^%s*", at)
    line = line + select(2, space:gsub("\n", ""))
    at = at + #space
    if at > #source then M.fail(line, "a tag has no end '%s'", closer) end
    local sign, last = source:match("^([-+]?)" .. closer:gsub("%p", "%%%0") .. "()", at)
    if depth <= 0 and last then return tokens, last, sign, line end
    local token
    token, last = token_at(source, at, line)
    depth = depth + (token.kind == "operator" and brackets[token.value] or 0)
    line = line + select(2, source:sub(at, last - 1):gsub("\n", ""))
    tokens[#tokens + 1], at = token, last
  end
end

-- The text before a tag, without the white space that the tag removes.
local function text_before(text, sign, is_variable, line_starts)
  if sign == "-" then return values.strip(text, false, true) end
  if sign == "+" or is_variable then return text end
  local head, blank = text:match "^(.*\n)([^\n]*)$"
  if not head then head, blank = "", text end
  if (head ~= "" or line_starts) and values.strip(blank, true) == "" then return head end
  return text
end

--- parts(source) -> a list of {kind="text", text=}, {kind="variable" or "block", tokens=, line=}.
function M.parts(source)
  source = source:gsub("\r\n?", "\n"):gsub("\n$", "")
  local parts, at, line, line_starts, strips = {}, 1, 1, true, false
  while at <= #source do
    local first = source:find("{[{%%#]", at) or #source + 1
    local text, mark = source:sub(at, first - 1), source:sub(first, first + 1)
    local sign = source:match("^[-+]?", first + 2) or ""
    local starts = line_starts and at == first or text:sub(-1) == "\n" or line_starts
    local shown = mark == "" and text or text_before(text, sign, mark == "{{", starts)
    if strips then shown = values.strip(shown, true, false) end
    if shown ~= "" then parts[#parts + 1] = {kind = "text", text = shown} end
    line = line + select(2, text:gsub("\n", ""))
    if mark == "" then break end
    local closing
    if mark == "{#" then
      local from, stop = source:find("#}", first + 2, true)
      if not from then M.fail(line, "a comment has no end") end
      closing = source:sub(from - 1, from - 1):match "[-+]" or ""
      line = line + select(2, source:sub(first, stop):gsub("\n", ""))
      at = stop + 1
    else
      local part = {kind = mark == "{{" and "variable" or "block", line = line}
      part.tokens, at, closing, line = inside(source, first + 2 + #sign, closers[mark], line)
      parts[#parts + 1] = part
    end
    strips, line_starts = closing == "-", false
    if mark ~= "{{" and closing == "" and source:sub(at, at) == "\n" then   -- trim_blocks
      at, line, line_starts = at + 1, line + 1, true
    end
  end
  return parts
end

return M
