-- Bytes as text in base64 (RFC 4648), for JSON.
local ffi = require "ffi"

local M = {}

local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local digits = ffi.new("uint8_t[64]", {alphabet:byte(1, -1)})
local values = ffi.new "int8_t[256]"                 -- of digits; -1: no digit
ffi.fill(values, 256, 0xFF)
for i = 0, 63 do values[digits[i]] = i end

--- decode(text) -> the bytes of a text in base64; nil if it is not.
function M.decode(text)
  text = text:gsub("=+$", "")
  if #text % 4 == 1 then return nil end
  local from, out = ffi.cast("const uint8_t *", text), ffi.new("uint8_t[?]", #text + 1)
  local number, count, size = 0, 0, 0
  for i = 0, #text - 1 do
    local value = values[from[i]]
    if value < 0 then return nil end
    number, count = number * 64 + value, count + 6
    if count >= 8 then
      count = count - 8
      out[size] = math.floor(number / 2 ^ count)
      number, size = number % 2 ^ count, size + 1
    end
  end
  return ffi.string(out, size)
end

--- encode(bytes) -> their text in base64.
function M.encode(bytes)
  local size = 4 * math.ceil(#bytes / 3)
  local from, out = ffi.cast("const uint8_t *", bytes .. "\0\0"), ffi.new("uint8_t[?]", size + 1)
  local at = 0
  for i = 0, #bytes - 1, 3 do
    local number = from[i] * 65536 + from[i + 1] * 256 + from[i + 2]
    for digit = 0, 3 do out[at + digit] = digits[math.floor(number / 64 ^ (3 - digit)) % 64] end
    at = at + 4
  end
  local missing = -#bytes % 3
  return ffi.string(out, size - missing) .. ("="):rep(missing)
end

return M
