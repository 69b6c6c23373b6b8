-- Where a long text may be cut, so that the ids of its pieces are those of the whole. Tokenizers
-- differ: some put a space before every piece, some only before one that does not begin with one.
local M = {}

local function is_space(byte) return byte == 32 or byte >= 9 and byte <= 13 end
local function is_printable(byte) return byte > 32 and byte < 127 end

-- The last position before white space that follows a printable ASCII character; nil if none.
local function before_space(p, size)
  for i = size - 1, 1, -1 do
    if is_space(p[i]) and is_printable(p[i - 1]) then return i end
  end
end

-- The last position before a single space between two printable ASCII characters; nil if none.
local function before_one_space(p, size)
  for i = size - 2, 1, -1 do
    if p[i] == 32 and is_printable(p[i - 1]) and is_printable(p[i + 1]) then return i end
  end
end

-- Whether SentencePiece's mark of a space is within a token, so that tokens extend over words.
local function joins_words(words)
  local mark = "\226\150\129"
  for _, symbol in ipairs(words.symbols) do
    local inner = symbol:find(mark, 1, true) and symbol:gsub("^[\226\150\129]+", "") or ""
    local _, last = inner:find(mark, 1, true)
    if last and last < #inner then return true end
  end
  return false
end

--- any(p, size): for uses where a token more or less does not matter.
M.any = before_space

--- of(words) -> cut, skip. cut(p, size) -> the last position in p[0 .. size - 1] where a text may
--- be cut; nil if none, as for tokens that extend over words. skip: bytes that each piece but the
--- first must leave out at its beginning.
function M.of(words)
  local function joined(a, b, whole)
    local options = {add_special = false}
    local ids, expected = words:ids(a, options), words:ids(whole, options)
    for _, id in ipairs(words:ids(b, options)) do ids[#ids + 1] = id end
    return table.concat(ids, " ") == table.concat(expected, " ")
  end
  if words.kind == "byte" then return before_space, 0 end
  if joins_words(words) then return function() end, 0 end
  local keeps = joined("x", " y", "x y")
  if keeps and joined("x", "\ny", "x\ny") and joined("x", "  y", "x  y") then
    return before_space, 0
  end
  if keeps then return before_one_space, 0 end
  if joined("x", "y", "x y") then return before_one_space, 1 end
  return function() end, 0                             -- a text is one piece
end

return M
