-- The header of a safetensors file. It checks what the library safetensors checks: sizes, shapes
-- and offsets, which must be inside the file, without overlaps and holes. Other than there, a dtype
-- that is not known does not make the file invalid.
local cjson = require "cjson"
local ffi = require "ffi"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local utf8 = require "nn.base.utf8"

local M = {}
local HEADER_LIMIT = 100e6
-- Bits per element, also of dtypes that cannot be loaded.
local bits = {F32 = 32, F64 = 64, BF16 = 16, I32 = 32, I64 = 64, U8 = 8, BOOL = 8, F16 = 16, I8 = 8,
              I16 = 16, U16 = 16, U32 = 32, U64 = 64, C64 = 64, F4 = 4, F6_E2M3 = 6, F6_E3M2 = 6,
              F8_E4M3 = 8, F8_E5M2 = 8, F8_E8M0 = 8, F8_E4M3FNUZ = 8, F8_E5M2FNUZ = 8}

local function is_whole(x) return type(x) == "number" and x >= 0 and x % 1 == 0 and x <= 2 ^ 53 end

-- The number of elements; nil if the shape is none.
local function elements_of(shape)
  local count = json.is_list(shape) and 1 or nil
  for _, extent in ipairs(count and shape or {}) do
    count = count and is_whole(extent) and count * extent <= 2 ^ 53 and count * extent or nil
  end
  return count
end

-- {dtype=, shape=, first=, bytes=} of an entry of the header. wrong(format, ...) raises an error.
-- A dtype that is unknown here may be one of a later version of the format.
local function checked_entry(name, value, room, wrong)
  if type(value) ~= "table" then wrong("the entry '%s' is not an object", name) end
  local dtype, shape, offsets = value.dtype, value.shape, value.data_offsets
  if type(dtype) ~= "string" then
    wrong("'%s' has no dtype, which is a text such as F32", name)
  end
  local count = elements_of(shape) or wrong("'%s' has no valid shape", name)
  if not json.is_list(offsets) or #offsets ~= 2 or not is_whole(offsets[1])
    or not is_whole(offsets[2]) or offsets[1] > offsets[2] then
    wrong("'%s' has no valid data_offsets", name)
  end
  local first, last = offsets[1], offsets[2]
  if last > room then wrong("'%s' ends at byte %.0f of the data's %.0f", name, last, room) end
  local needed = bits[dtype] and count * bits[dtype] / 8 or last - first
  if last - first ~= needed then
    wrong("'%s' has %.0f bytes; its shape and dtype need %.17g", name, last - first, needed)
  end
  return {name = name, dtype = dtype, shape = shape, first = first, bytes = last - first}
end

local function checked_metadata(value, wrong)
  if value == cjson.null then return {} end
  if type(value) ~= "table" then wrong "its __metadata__ is not an object" end
  for name, text in pairs(value) do
    if type(text) ~= "string" then wrong("'%s' in __metadata__ is not a string", tostring(name)) end
  end
  return value
end

-- Refuses what the parser of JSON reads like something else: 2.0 like 2, {} like [], any bytes.
local function check_text(text, wrong)
  local invalid = text:find "[\128-\255]" and utf8.invalid(text)
  if invalid then wrong("byte %d of its header is not UTF-8", invalid) end
  local plain = text:gsub("\\.", "")                     -- so that a quote begins or ends a string
  if plain:find '"shape"%s*:%s*{' then wrong "a shape is an object, not a list" end
  if plain:find '"__metadata__"%s*:%s*%[' then wrong "its __metadata__ is not an object" end
  for _, name in ipairs {"shape", "data_offsets"} do
    for list in plain:gmatch('"' .. name .. '"%s*:%s*(%b[])') do
      if list:find "%d[.eE]" or list:find "-0" then
        wrong("%s is %s; whole numbers in digits only are needed", name, list)
      end
    end
  end
end

-- The header as a Lua table, and the offset of the data.
local function parse_header(path, map, wrong)
  if map.size < 8 then wrong("%d bytes are too few for a header", map.size) end
  if ffi.string(map.data, math.min(map.size, 22)) == "version https://git-lf" then
    wrong "it is a Git LFS pointer; run `git lfs pull` in its folder to download the file"
  end
  local length = 0
  for i = 0, 7 do length = length + map.data[i] * 2 ^ (8 * i) end
  if length > HEADER_LIMIT or length + 8 > map.size then
    wrong("a header of %.0f bytes in a file of %.0f", length, map.size)
  end
  local subject = path .. " is not a valid safetensors file: its header"
  local text = ffi.string(map.data + 8, length)
  local header = json.object(text, subject)
  check_text(text, wrong)
  return header, 8 + length
end

local function before(a, b)
  if a.first ~= b.first then return a.first < b.first end
  if a.bytes ~= b.bytes then return a.bytes < b.bytes end
  return a.name < b.name
end

--- read(path, map) -> entries {name=, dtype=, shape=, first=, bytes=} in the order of the data, the
--- metadata, the offset of the data. map: the mapped file. Errors: the file and the problem.
function M.read(path, map)
  local function wrong(text, ...)
    lib.deny("%s is not a valid safetensors file: " .. text, path, ...)
  end
  local header, begin = parse_header(path, map, wrong)
  local entries, metadata, at = {}, {}, 0
  for name, value in pairs(header) do
    if name == "__metadata__" then
      metadata = checked_metadata(value, wrong)
    else
      entries[#entries + 1] = checked_entry(tostring(name), value, map.size - begin, wrong)
    end
  end
  table.sort(entries, before)
  for _, entry in ipairs(entries) do
    if entry.first < at then wrong("'%s' overlaps the tensor before it", entry.name) end
    if entry.first > at then wrong("there is a hole before '%s'", entry.name) end
    at = at + entry.bytes
  end
  local rest = map.size - begin - at
  if rest ~= 0 then wrong("%.0f bytes at its end belong to no tensor", rest) end
  return entries, metadata, begin
end

return M
