-- The names of bytes in files of byte-level vocabularies: a printable character is its own name;
-- the other bytes have the characters from U+0100.
local utf8 = require "nn.base.utf8"

local M = {}
local name_of_byte, byte_of_name = {}, {}
do
  local others = 0
  for byte = 0, 255 do
    local printable = byte >= 33 and byte <= 126 or byte >= 161 and byte ~= 173
    local name = utf8.encode(printable and byte or 256 + others)
    if not printable then others = others + 1 end
    name_of_byte[string.char(byte)], byte_of_name[name] = name, string.char(byte)
  end
end

--- of(bytes) -> the name of a token.
function M.of(bytes) return (bytes:gsub(".", name_of_byte)) end

-- Characters that name no byte.
local foreign = {"[%z\1-\32\127\192\193\198-\255]", "\194[\128-\160\173]", "\197[\132-\191]"}

--- bytes(name) -> the bytes of a token's name; nil if it contains other characters.
function M.bytes(name)
  for _, pattern in ipairs(foreign) do
    if name:find(pattern) then return nil end
  end
  return (name:gsub("[\194-\197][\128-\191]", byte_of_name))
end

--- symbols() -> the 256 bytes in GPT-2's order of ids: by the code points of their names.
function M.symbols()
  local first, others = {}, {}
  for byte = 0, 255 do
    local symbol = string.char(byte)
    local list = #name_of_byte[symbol] == 1 and first or others
    list[#list + 1] = symbol
  end
  table.sort(others, function(a, b) return name_of_byte[a] < name_of_byte[b] end)
  for _, symbol in ipairs(others) do first[#first + 1] = symbol end
  return first
end

return M
