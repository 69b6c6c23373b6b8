-- Writes event files of TensorBoard: a sequence of records, each a protocol buffer (event.proto of
-- TensorFlow) with its length and checksums (masked CRC-32C). Only numbers and texts.
local bit = require "bit"
local computer = require "nn.measure.computer"
local ffi = require "ffi"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"

local M = {}

local crc_table = ffi.new "uint32_t[256]"
for i = 0, 255 do
  local crc = i
  for _ = 1, 8 do
    crc = bit.bxor(bit.rshift(crc, 1), bit.band(crc, 1) ~= 0 and 0x82F63B78 or 0)
  end
  crc_table[i] = crc
end

-- The masked CRC-32C of a text, in four bytes.
local function checksum(text)
  local crc = -1
  for i = 1, #text do
    crc = bit.bxor(bit.rshift(crc, 8), crc_table[bit.band(bit.bxor(crc, text:byte(i)), 255)])
  end
  crc = bit.bnot(crc)
  local masked = bit.tobit(bit.bor(bit.rshift(crc, 15), bit.lshift(crc, 17)) + 0xA282EAD8)
  return ffi.string(ffi.new("uint32_t[1]", masked % 2 ^ 32), 4)
end

-- Protocol buffers: a field is its number and kind, then the value.
local function varint(x)
  local bytes = {}
  while x >= 128 do
    bytes[#bytes + 1] = string.char(x % 128 + 128)
    x = math.floor(x / 128)
  end
  return table.concat(bytes) .. string.char(x)
end
local function number_field(number, x) return varint(number * 8) .. varint(x) end
local function text_field(number, text) return varint(number * 8 + 2) .. varint(#text) .. text end
local function double_field(number, x)
  return varint(number * 8 + 1) .. ffi.string(ffi.new("double[1]", x), 8)
end
local function float_field(number, x)
  return varint(number * 8 + 5) .. ffi.string(ffi.new("float[1]", x), 4)
end

local function record(event)
  local length = ffi.string(ffi.new("uint64_t[1]", #event), 8)
  return length .. checksum(length) .. event .. checksum(event)
end

--- event(time, step, field) -> the record of an event; time in seconds; field: of a function below.
function M.event(time, step, field)
  return record(double_field(1, time) .. (step > 0 and number_field(2, step) or "") .. field)
end

--- version() -> the field of the first event in a file.
function M.version() return text_field(3, "brain.Event:2") end

--- start() -> the field that makes TensorBoard discard all events of later steps.
function M.start() return text_field(7, number_field(1, 1)) end

--- scalars({name = number, ...}) -> the field with these numbers.
function M.scalars(values)
  local parts = {}
  for i, name in ipairs(tables.sorted_keys(values)) do
    parts[i] = text_field(1, text_field(1, name) .. float_field(2, values[name]))
  end
  return text_field(5, table.concat(parts))
end

--- text(name, text) -> the field with a text: a tensor of one string, shown by the text plugin.
function M.text(name, text)
  local tensor = number_field(1, 7) .. text_field(2, text_field(2, number_field(1, 1)))
    .. text_field(8, text)
  local metadata = text_field(1, text_field(1, "text"))
  return text_field(5, text_field(1, text_field(1, name) .. text_field(8, tensor)
                                     .. text_field(9, metadata)))
end

local Writer = {}
Writer.__index = Writer

--- new(folder, step, time) -> writer of a new event file in the folder; discards events of later
--- steps in older files. Errors: it cannot be written.
function M.new(folder, step, time)
  local path = files.join(folder, ("events.out.tfevents.%010d.%s.%d"):format(
    time, computer.name():gsub("[^%w.-]", "_"), step))
  local file, reason = io.open(file_type.replaced(path), "ab")
  if not file then lib.fail("cannot write %s", reason) end
  local self = setmetatable({file = file}, Writer)
  self:write(time, 0, M.version())
  if step > 0 then self:write(time, step + 1, M.start()) end
  return self
end

-- Returns true, or nil and the reason of a failure.
function Writer:write(time, step, field)
  local written, reason = self.file:write(M.event(time, step, field))
  if not written then return nil, reason end
  return self.file:flush()
end
jit.off(Writer.write)     -- compiled, a failed flush is repeated, and then succeeds

--- writer:scalars(step, values), writer:text(step, name, text): write an event with the current
--- time -> true, or nil and the reason of a failure.
function Writer:scalars(step, values) return self:write(os.time(), step, M.scalars(values)) end
function Writer:text(step, name, text) return self:write(os.time(), step, M.text(name, text)) end

function Writer:close() self.file:close() end

return M
