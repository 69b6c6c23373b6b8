-- A strict reader for JSON from other programs: a repeated name in an object is an error (most
-- readers silently keep the last value), and so are NaN and Infinity.
local cjson = require "cjson"
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local M = {}
local strict = cjson.new()
strict.decode_invalid_numbers(false)

local QUOTE, BACKSLASH, COMMA = 0x22, 0x5C, 0x2C
local OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D

-- The position of the quote that ends the string at p[at].
local function string_end(p, at)
  at = at + 1
  while p[at] ~= QUOTE do at = at + (p[at] == BACKSLASH and 2 or 1) end
  return at
end

-- A name that occurs twice in an object of a valid JSON text; nil if none.
local function repeated_name(text)
  local p, at, size = ffi.cast("const uint8_t *", text), 0, #text
  local names, around, key_next = false, {}, false   -- of the innermost object; false in a list
  while at < size do
    local c = p[at]
    if c == QUOTE then
      local last = string_end(p, at)
      if key_next then
        local name = ffi.string(p + at, last + 1 - at)
        if name:find("\\", 1, true) then
          name = '"' .. strict.decode("[" .. name .. "]")[1] .. '"'
        end
        if names[name] then return name end
        names[name], key_next = true, false
      end
      at = last
    elseif c == OPEN or c == OPEN_LIST then
      around[#around + 1] = names
      names = c == OPEN and {}
      key_next = c == OPEN
    elseif c == CLOSE or c == CLOSE_LIST then
      names = table.remove(around)
      key_next = false
    elseif c == COMMA then
      key_next = names ~= false
    end
    at = at + 1
  end
end

--- object(text, subject) -> a JSON object or list as a table. Errors: invalid JSON, with `subject`
--- (a file name) and the reason.
function M.object(text, subject)
  local good, value = pcall(strict.decode, text)
  if not good then lib.deny("%s is not JSON (%s)", subject, tostring(value)) end
  local zero = text:find("\0", 1, true)               -- the decoder ignores what follows it
  if zero then lib.deny("%s is not JSON (byte %d is zero)", subject, zero) end
  if type(value) ~= "table" then lib.deny("%s is not a JSON object", subject) end
  local name = repeated_name(text)
  if name then lib.deny("%s has the name %s twice", subject, name) end
  return value
end

--- read(path) -> the JSON object or list in a file, as a table. Errors: as object().
function M.read(path) return M.object(files.read(path), path) end

--- is_list(value) -> whether the value is a table with only the keys 1 to #value.
function M.is_list(value)
  if type(value) ~= "table" then return false end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  return count == #value
end

return M
