-- Reads the wire format of Protocol Buffers, in which SentencePiece writes its models.
local bit = require "bit"
local ffi = require "ffi"

local M = {}

-- The number at p[at] in groups of 7 bits, and the position behind it.
local function varint(p, at, last, fail)
  local number, scale = 0, 1
  for i = 1, 10 do
    if at >= last then break end
    local byte = p[at]
    at = at + 1
    if i <= 5 then number, scale = number + byte % 128 * scale, scale * 128 end
    if byte < 128 then return number, at end
  end
  fail(at)
end

-- By wire type: the value at p[at], and the position behind it.
local readers = {}

readers[0] = function(p, at, last, fail)
  local number, behind = varint(p, at, last, fail)
  return bit.tobit(number), behind
end

readers[1] = function(_, at) return nil, at + 8 end

readers[2] = function(p, at, last, fail)
  local size, first = varint(p, at, last, fail)
  return first, first + size
end

readers[5] = function(p, at, last)
  if at + 4 > last then return nil, at + 4 end
  -- LuaJIT may take the bits of a NaN for another value.
  local is_finite = bit.band(ffi.cast("const int32_t *", p + at)[0], 0x7F800000) ~= 0x7F800000
  return is_finite and ffi.cast("const float *", p + at)[0] or math.huge, at + 4
end

--- field(p, at, last, fail) -> number, wire type, value, stop: of the field at p[at] of a message
--- that ends before p[last]. value: 0 (varint) the lower 32 bits as a signed integer; 2 (bytes) the
--- position of the first, and `stop` behind the last; 5 a float, infinity for what is not finite; 1
--- none. The next field begins at `stop`. Calls fail(position) where the message is damaged; it
--- must raise an error.
function M.field(p, at, last, fail)
  local key, behind = varint(p, at, last, fail)
  local number, wire = math.floor(key / 8), key % 8
  if number == 0 or not readers[wire] then fail(at) end
  local value, stop = readers[wire](p, behind, last, fail)
  if stop > last then fail(behind) end
  return number, wire, value, stop
end

return M
