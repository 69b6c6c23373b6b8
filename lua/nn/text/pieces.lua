-- Splits text as GPT-2 does before it merges bytes to tokens: contractions; words, numbers and runs
-- of other characters, each with the space before it; and white space. The pattern of encoder.py,
--   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
-- as a scanner over bytes. An invalid byte in UTF-8 counts as an other character.
local bit = require "bit"
local ffi = require "ffi"
local band, bor, shl = bit.band, bit.bor, bit.lshift

local M = {}
local OTHER, LETTER, NUMBER, SPACE = 0, 1, 2, 3
local QUOTE, BLANK = 39, 32

local classes            -- the class of every code point, filled at first use

local function fill_classes()
  local unicode = require "nn.text.unicode"
  classes = ffi.new "uint8_t[0x110000]"
  for class, ranges in pairs {[LETTER] = unicode.letters, [NUMBER] = unicode.numbers,
                              [SPACE] = unicode.spaces} do
    for first, last in ranges:gmatch "(%x+)%-?(%x*)" do
      local from = tonumber(first, 16)
      local to = last == "" and from or tonumber(last, 16)
      ffi.fill(classes + from, to - from + 1, class)
    end
  end
end

--- decode(p, at, last) -> the code point and the length of the UTF-8 character at p[at]; nil if it
--- is invalid: overlong, a surrogate, or beyond U+10FFFF (The Unicode Standard, table 3-7).
function M.decode(p, at, last)
  local a = p[at]
  if a < 0x80 then return a, 1 end
  local length = a < 0xC2 and 0 or a < 0xE0 and 2 or a < 0xF0 and 3 or a < 0xF5 and 4 or 0
  if length == 0 or at + length > last then return nil end
  local b = p[at + 1]
  if band(b, 0xC0) ~= 0x80 then return nil end
  if length == 2 then return bor(shl(band(a, 0x1F), 6), band(b, 0x3F)), 2 end
  local c = p[at + 2]
  if band(c, 0xC0) ~= 0x80 then return nil end
  if length == 3 then
    if a == 0xE0 and b < 0xA0 or a == 0xED and b > 0x9F then return nil end   -- long; surrogate
    return bor(shl(band(a, 0x0F), 12), shl(band(b, 0x3F), 6), band(c, 0x3F)), 3
  end
  local d = p[at + 3]
  if band(d, 0xC0) ~= 0x80 or a == 0xF0 and b < 0x90 or a == 0xF4 and b > 0x8F then return nil end
  return bor(shl(band(a, 0x07), 18), shl(band(b, 0x3F), 12), shl(band(c, 0x3F), 6),
             band(d, 0x3F)), 4
end

-- Class and length in bytes of the character at p[at].
local function class_at(p, at, last)
  local code, length = M.decode(p, at, last)
  if not code then return OTHER, 1 end
  return classes[code], length
end

-- The end of a run of one class that continues at `at`.
local function run_end(p, at, last, class)
  while at < last do
    local here, length = class_at(p, at, last)
    if here ~= class then break end
    at = at + length
  end
  return at
end

-- The length of the contraction ('s 't 'm 'd 're 've 'll) at `at`, or 0.
local function contraction(p, at, last)
  local a, b = at + 1 < last and p[at + 1] or 0, at + 2 < last and p[at + 2] or 0
  if a == 115 or a == 116 or a == 109 or a == 100 then return 2 end        -- s t m d
  if (a == 114 or a == 118) and b == 101 or a == 108 and b == 108 then return 3 end
  return 0
end

-- The end of white space at `at`. Its last character belongs to the following word, unless it is
-- the only one.
local function space_end(p, at, last)
  local before, stop = at, at
  while stop < last do
    local class, length = class_at(p, stop, last)
    if class ~= SPACE then break end
    before, stop = stop, stop + length
  end
  return stop < last and before > at and before or stop
end

--- piece_end(p, at, last) -> the end of the piece that begins at p[at]; p is a uint8_t pointer; the
--- text ends before `last`.
function M.piece_end(p, at, last)
  if not classes then fill_classes() end
  local byte = p[at]
  if byte == QUOTE then
    local length = contraction(p, at, last)
    if length > 0 then return at + length end
  end
  local class, length = class_at(p, at, last)
  if class ~= SPACE then return run_end(p, at + length, last, class) end
  if byte == BLANK and at + 1 < last then
    local next_class, next_length = class_at(p, at + 1, last)
    if next_class ~= SPACE then return run_end(p, at + 1 + next_length, last, next_class) end
  end
  return space_end(p, at, last)
end

return M
