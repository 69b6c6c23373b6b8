-- UTF-8 of single characters.
local bit = require "bit"
local ffi = require "ffi"
local band, bor, shl = bit.band, bit.bor, bit.lshift

local M = {}

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

--- invalid(text), invalid(p, size) -> the position, from 0, of the first byte of a text, or of the
--- bytes p[0 .. size - 1], that is not UTF-8; nil if all are.
function M.invalid(text, size)
  local p, at = ffi.cast("const uint8_t *", text), 0
  size = size or #text
  while at < size do
    local _, length = 0, 1
    if p[at] >= 0x80 then _, length = M.decode(p, at, size) end
    if not length then return at end
    at = at + length
  end
end

--- encode(code) -> the UTF-8 text of a code point.
function M.encode(code)
  if code < 0x80 then return string.char(code) end
  local bytes, lead = {}, 0x40
  repeat
    table.insert(bytes, 1, string.char(0x80 + code % 64))
    code, lead = math.floor(code / 64), lead / 2
  until code < lead
  return string.char(256 - 2 * lead + code) .. table.concat(bytes)
end

return M
