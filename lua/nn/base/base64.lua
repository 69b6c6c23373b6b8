-- Bytes as text in base64 (RFC 4648), for JSON.
local M = {}

local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local digits = {}
for i = 0, 63 do digits[alphabet:byte(i + 1)] = i end

--- decode(text) -> the bytes of a text in base64; nil if it is not.
function M.decode(text)
  local parts = {}
  text = text:gsub("=+$", "")
  for at = 1, #text, 4 do
    local number, count = 0, 0
    for i = at, at + 3 do
      local digit = i <= #text and digits[text:byte(i)]
      if i <= #text and not digit then return nil end
      number, count = number * 64 + (digit or 0), count + (digit and 1 or 0)
    end
    if count == 1 then return nil end
    parts[#parts + 1] = string.char(math.floor(number / 65536), math.floor(number / 256) % 256,
                                    number % 256):sub(1, count - 1)
  end
  return table.concat(parts)
end

--- encode(bytes) -> their text in base64.
function M.encode(bytes)
  local parts = {}
  for at = 1, #bytes, 3 do
    local a, b, c = bytes:byte(at, at + 2)
    local number = a * 65536 + (b or 0) * 256 + (c or 0)
    for i = 3, 0, -1 do
      local digit = math.floor(number / 64 ^ i) % 64
      local missing = i == 0 and not c or i == 1 and not b
      parts[#parts + 1] = missing and "=" or alphabet:sub(digit + 1, digit + 1)
    end
  end
  return table.concat(parts)
end

return M
