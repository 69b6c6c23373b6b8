-- Text as a terminal shows it: UTF-8 characters with their combining marks, and the columns each
-- takes (libc's wcwidth). Positions are byte offsets: `at` is between bytes at and at + 1.
local ffi = require "ffi"

ffi.cdef [[
  int wcwidth(int32_t code);
  char *setlocale(int category, const char *locale);
]]

local M = {}

local tab_width = 4
local has_locale

-- wcwidth knows Unicode in a UTF-8 locale only; nothing else of Lua or the engine asks for one.
local function wcwidth(code)
  if not has_locale then
    has_locale = ffi.C.setlocale(0, "C.UTF-8") ~= nil or ffi.C.setlocale(0, "") ~= nil
  end
  return ffi.C.wcwidth(code)
end

-- The code point that starts at offset `at`, and its length; nil and 1 for an invalid byte.
local function decode(text, at)
  local a = text:byte(at + 1)
  if a < 0x80 then return a, 1 end
  local length = a >= 0xF0 and 4 or a >= 0xE0 and 3 or 2
  if a < 0xC2 or a > 0xF4 or at + length > #text then return nil, 1 end
  local code = a % 2 ^ (7 - length)
  for i = 2, length do
    local b = text:byte(at + i)
    if b < 0x80 or b > 0xBF then return nil, 1 end
    code = code * 64 + b % 64
  end
  return code, length
end

-- Columns of a code point: 2 for "^A" of a control character, 4 for "<ff>" of an invalid byte.
local function columns_of(code)
  if not code then return 4 end
  if code == 9 then return tab_width end
  if code < 32 or code == 127 then return 2 end
  if code < 127 then return 1 end
  local n = wcwidth(code)
  return n < 0 and 1 or n
end

--- next(text, at) -> the offset after the character there and its combining marks, and its columns.
function M.next(text, at)
  if at >= #text then return #text, 0 end
  local code, length = decode(text, at)
  local width, last = columns_of(code), at + length
  while last < #text and (code or 0) >= 32 do
    local mark
    mark, length = decode(text, last)
    if not mark or mark < 128 or wcwidth(mark) ~= 0 then break end
    last = last + length
  end
  return last, width
end

--- previous(text, at) -> the offset before the character that ends there.
function M.previous(text, at)
  local here, last = M.line_start(text, math.max(0, at - 1)), 0
  while here < at do last, here = here, (M.next(text, here)) end
  return last
end

--- width(text) -> its columns. Escape sequences for colours take none.
function M.width(text)
  text = text:gsub("\27%[[%d;]*m", "")
  if not text:find "[^\32-\126]" then return #text end
  local at, total, width = 0, 0
  while at < #text do
    at, width = M.next(text, at)
    total = total + width
  end
  return total
end

--- visible(character) -> what to write to a terminal for it.
function M.visible(character)
  if character == "\t" then return (" "):rep(tab_width) end
  local first = character:byte()
  if first < 32 then return "^" .. string.char(first + 64) .. character:sub(2) end
  if first == 127 then return "^?" end
  if decode(character, 0) == nil then return ("<%02x>"):format(first) end
  return character
end

--- fit(text, from, to, columns) -> the largest offset up to `to` such that the text after `from`
--- takes no more than so many columns.
function M.fit(text, from, to, columns)
  local used = 0
  while from < to do
    local after, width = M.next(text, from)
    used = used + width
    if used > columns then break end
    from = after
  end
  return from
end

--- clip(text, columns) -> the text, or as much as fits with "..." at its end.
function M.clip(text, columns)
  if M.width(text) <= columns then return text end
  return text:sub(1, M.fit(text, 0, #text, columns - 3)) .. "..."
end

local function is_word(text, i) return text:find("^[%w_\128-\255]", i) ~= nil end

--- word_start(text, at) -> where the word before `at` starts.
function M.word_start(text, at)
  while at > 0 and not is_word(text, at) do at = at - 1 end
  while at > 0 and is_word(text, at) do at = at - 1 end
  return at
end

--- word_end(text, at) -> where the word after `at` ends.
function M.word_end(text, at)
  while at < #text and not is_word(text, at + 1) do at = at + 1 end
  while at < #text and is_word(text, at + 1) do at = at + 1 end
  return at
end

--- line_start(text, at), line_end(text, at) -> offsets of the line that contains `at`.
function M.line_start(text, at)
  while at > 0 and text:byte(at) ~= 10 do at = at - 1 end
  return at
end
function M.line_end(text, at)
  return (text:find("\n", at + 1, true) or #text + 1) - 1
end

--- lines(text) -> list of its lines.
function M.lines(text)
  local list = {}
  for line in (text .. "\n"):gmatch "(.-)\n" do list[#list + 1] = line end
  return list
end

--- wrap(text, columns) -> list of its lines, broken at spaces where they are longer.
function M.wrap(text, columns)
  local list = {}
  for _, line in ipairs(M.lines(text)) do
    local indent = line:match "^ *"
    while M.width(line) > columns do
      local cut = columns
      while cut > #indent and line:sub(cut, cut) ~= " " do cut = cut - 1 end
      if cut <= #indent then cut = columns end
      list[#list + 1] = line:sub(1, cut):gsub(" +$", "")
      line = indent .. line:sub(cut + 1):gsub("^ +", "")
    end
    list[#list + 1] = line
  end
  return list
end

return M
