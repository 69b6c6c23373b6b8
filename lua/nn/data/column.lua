-- A column: one field of many examples. Numbers are in a host array, texts in a list.
local arguments = require "nn.base.arguments"
local creation = require "nn.core.creation"
local ffi = require "ffi"
local files = require "nn.io.files"
local is_tensor = require("nn.core.tensor").is_tensor
local lib = require "nn.base.capi"
local numbers_of = require "nn.data.numbers"

local M = {}
local Column = {}
Column.__index = Column

-- A column of numbers: `data` is an array of dtype's host type; shape: of one example.
local function new_column(data, count, shape, dtype)
  local size = 1
  for _, extent in ipairs(shape) do size = size * extent end
  return setmetatable({data = data, count = count, shape = shape, dtype = dtype,
                       bytes = size * lib.dtype_size[dtype]}, Column)
end

local function described(value)
  if type(value) == "userdata" then return "null" end       -- of cjson
  return lib.shortened(arguments.describe(value), 100)
end

local function shape_of(value)
  local shape = {}
  while type(value) == "table" do
    shape[#shape + 1] = #value
    value = value[1]
  end
  return shape
end

-- What is wrong with a text where a number is needed, if it is one that lost digits; else nil.
local function lost(value, name)
  return type(value) == "string" and numbers_of.is_lost(value)
    and ('%s, which has more digits than a number keeps; dtypes = {%s = "text"} reads texts')
      :format(lib.shortened(value, 60), name)
end

-- Appends the numbers of a nested table of this shape to out[at ...] -> the next position, or nil
-- and what is wrong. kind: "number" or "boolean", which all are; nil: either.
local function flatten(out, at, value, shape, depth, kind, name)
  if depth > #shape then
    local is_other = kind and type(value) ~= kind
    if type(value) ~= "number" and type(value) ~= "boolean" then
      return nil, lost(value, name) or ("%s, not a number"):format(described(value))
    elseif is_other then
      return nil, ("%s; the first is a %s"):format(tostring(value), kind)
    end
    if type(value) == "boolean" then value = value and 1 or 0 end
    out[at] = value
    return at + 1
  end
  if type(value) ~= "table" or getmetatable(value) then
    return nil, ("%s where the first has a list"):format(described(value))
  end
  if #value ~= shape[depth] then
    return nil, ("a list of %d where the first has %d"):format(#value, shape[depth])
  end
  for i = 1, #value do
    local wrong
    at, wrong = flatten(out, at, value[i], shape, depth + 1, kind, name)
    if not at then return nil, wrong end
  end
  return at
end

local one = ffi.new "float[1]"

--- need_f32(value, name, place, i): raises an error if the default dtype, f32, cannot hold a whole
--- number, as some beyond 2^24; those beyond i64 are no ids. The others: as M.new, of example i.
function M.need_f32(value, name, place, i)
  one[0] = value
  if value % 1 == 0 and one[0] ~= value and math.abs(value) < 2 ^ 63 then
    lib.deny("%s: field '%s' is %.0f, which f32 cannot hold; dtypes = {%s = \"i64\"} or f64 can, "
             .. "f32 rounds it", place(i), name, value, name)
  end
end

-- name, place: for errors, see M.new.
local function from_numbers(values, count, name, dtype, place)
  local shape, size = shape_of(values[1]), 1
  for _, extent in ipairs(shape) do size = size * extent end
  if size == 0 then lib.deny("%s: field '%s' is an empty list", place(1), name) end
  local first = values[1]
  while type(first) == "table" do first = first[1] end
  local numbers, at = ffi.new("double[?]", count * size), 0
  for i = 1, count do
    if i % lib.CHECK_EVERY == 0 then lib.check_interrupt() end
    local wrong
    at, wrong = flatten(numbers, at, values[i], shape, 1, not dtype and type(first) or nil, name)
    if not at then lib.deny("%s: field '%s' is %s", place(i), name, wrong) end
  end
  for i = 0, dtype and -1 or count * size - 1 do
    M.need_f32(numbers[i], name, place, math.floor(i / size) + 1)
  end
  dtype = dtype or type(first) == "boolean" and "bool" or "f32"
  local data = ffi.new(lib.host_type[dtype] .. "[?]", count * size)
  local good, problem = lib.protected(function()
    lib.check(lib.C.nn_copy_from_f64(numbers, lib.dtype_number[dtype], count * size, data))
  end)
  if not good then lib.deny("field '%s': %s", name, lib.is_error(problem) and problem.message
                                                    or tostring(problem)) end
  return new_column(data, count, shape, dtype)
end

local function from_tensors(values, count, name, dtype, place)
  local first, out = values[1], nil
  for i = 1, count do
    local x = values[i]
    if not is_tensor(x) then
      lib.deny("%s: field '%s' is %s; the first is a tensor", place(i), name, described(x))
    end
    if table.concat(x.shape, ",") ~= table.concat(first.shape, ",") or x.dtype ~= first.dtype then
      lib.deny("%s: field '%s' is (%s) %s; the first is (%s) %s", place(i), name,
               table.concat(x.shape, ","), x.dtype, table.concat(first.shape, ","), first.dtype)
    end
    local data = (dtype and x:to(dtype) or x):host()
    out = out or new_column(ffi.new(lib.host_type[dtype or x.dtype] .. "[?]", count * x:count()),
                            count, x.shape, dtype or x.dtype)
    ffi.copy(ffi.cast("char *", out.data) + (i - 1) * out.bytes, data, out.bytes)
  end
  return out
end

local function from_texts(values, count, name, dtype, place)
  for i = 1, count do
    if type(values[i]) ~= "string" and lost(values[1], name) then
      lib.deny("%s: field '%s' is %s", place(1), name, lost(values[1], name))
    elseif type(values[i]) ~= "string" then
      lib.deny("%s: field '%s' is %s; the first is a text", place(i), name, described(values[i]))
    end
  end
  if dtype then
    lib.deny("%s: field '%s' is %s", place(1), name, lost(values[1], name)
             or ("%s; a number is needed for the dtype %s"):format(described(values[1]), dtype))
  end
  return setmetatable({list = values, count = count}, Column)
end

-- {data=, shape=, dtype=}: a row-major C array of the dtype's host type.
local function from_host(values, name)
  local shape, dtype = values.shape, values.dtype
  local axes = arguments.list("data", ("the shape of field '%s'"):format(name), shape)
  for i, size in ipairs(shape) do
    arguments.whole("data", ("size %d of field '%s'"):format(i, name), size)
  end
  arguments.need(axes > 0 and lib.host_type[dtype] and type(values.data) == "cdata", "data",
                 ("field '%s'"):format(name), values,
                 '{data = a C array, shape = {count, ...}, dtype = "f32"} is needed')
  return new_column(values.data, shape[1], {unpack(shape, 2)}, dtype)
end

--- new(name, values, dtype, place) -> the column of a tensor whose first axis counts examples, of
--- such a host array, {data=, shape=, dtype=}, or of a list of numbers, booleans, nested lists of
--- these, tensors or texts, all of one shape. dtype: of the column; by default f32, bool for
--- booleans, and that of tensors and host arrays. place(i) says in errors where example i is from.
--- Errors: values that differ in kind or shape.
function M.new(name, values, dtype, place)
  if is_tensor(values) then
    if #values.shape == 0 then lib.misuse("data: field '%s' is a tensor without axes", name) end
    local x = dtype and values:to(dtype) or values
    return new_column(x:host(), x.shape[1], {unpack(x.shape, 2)}, x.dtype)
  end
  if type(values) == "table" and values.data ~= nil then return from_host(values, name) end
  local count = arguments.list("data", ("field '%s'"):format(name), values)
  if count == 0 then lib.misuse("data: field '%s' is empty", name) end
  local first, from = values[1], from_numbers
  if is_tensor(first) then from = from_tensors elseif type(first) == "string" then
    from = from_texts
  end
  return from(values, count, name, dtype, place)
end

--- group(name, columns) -> one column (count, #columns) of columns of single numbers.
function M.group(name, columns)
  local first, parts = columns[1], #columns
  for _, c in ipairs(columns) do
    if c.list or #c.shape > 0 then
      lib.deny("data: field '%s' joins columns, of which each must have one number per example",
               name)
    end
  end
  local out = new_column(ffi.new(lib.host_type[first.dtype] .. "[?]", first.count * parts),
                         first.count, {parts}, first.dtype)
  for p, c in ipairs(columns) do
    for i = 0, first.count - 1 do out.data[i * parts + p - 1] = c.data[i] end
  end
  return out
end

--- to_classes(column, name) -> the column of the numbers of its texts, i32 from 0, and the texts by
--- number + 1, sorted.
function M.to_classes(texts, name)
  if not texts.list then lib.deny("data: classes: field '%s' has no texts", name) end
  local numbers, classes = {}, {}
  for _, text in ipairs(texts.list) do numbers[text] = 0 end
  for text in pairs(numbers) do classes[#classes + 1] = text end
  table.sort(classes)
  for i, text in ipairs(classes) do numbers[text] = i - 1 end
  local data = ffi.new("int32_t[?]", texts.count)
  for i, text in ipairs(texts.list) do data[i - 1] = numbers[text] end
  return new_column(data, texts.count, {}, "i32"), classes
end

--- column:take(numbers) -> the examples with these numbers, from 1: a tensor (#numbers, ...), or a
--- list of texts.
function Column:take(numbers)
  local rows = #numbers
  if self.list then
    local out = {}
    for row = 1, rows do out[row] = self.list[numbers[row]] end
    return out
  end
  local bytes = self.bytes
  local array = ffi.new(lib.host_type[self.dtype] .. "[?]",
                        rows * bytes / lib.dtype_size[self.dtype])
  local from, to = ffi.cast("const char *", self.data), ffi.cast("char *", array)
  for row = 1, rows do
    ffi.copy(to + (row - 1) * bytes, from + (numbers[row] - 1) * bytes, bytes)
  end
  return creation.from_host(array, {rows, unpack(self.shape)}, self.dtype)
end

--- column:form() -> {shape=, dtype=} of a tensor of one example, or "text".
function Column:form()
  return self.list and "text" or {shape = {1, unpack(self.shape)}, dtype = self.dtype}
end

--- column:checksum() -> a CRC-32 of all values.
function Column:checksum()
  if self.list then return files.crc32(table.concat(self.list, "\n")) end
  return files.crc32(self.data, self.count * self.bytes)
end

return M
