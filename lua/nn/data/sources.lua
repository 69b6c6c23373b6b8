-- Where the examples of examples.lua come from. A source has
--   count            its examples; nil: unknown, as of a stream
--   name             for messages
--   fingerprint      a text that changes with the data
--   ahead            batches that are requested before they are needed
--   open(self)       -> a queue: push(numbers) requests the batch of the examples with these
--                    numbers, from 1; pop() -> the oldest requested batch, with a tensor or a list
--                    by field. pop() of a stream returns fewer rows at its end, then nil.
local arguments = require "nn.base.arguments"
local column = require "nn.data.column"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"

local M = {}

-- ### A queue that makes a batch when it is popped

local Queue = {}
Queue.__index = Queue

local function new_queue(take) return setmetatable({take = take, first = 1, last = 0}, Queue) end

function Queue:push(numbers)
  self.last = self.last + 1
  self[self.last] = numbers
end

function Queue:pop()
  local numbers = self[self.first]
  self[self.first], self.first = nil, self.first + 1
  return self.take(numbers)
end

-- ### Columns

local Columns = {}
Columns.__index = Columns

--- columns(columns, name, classes) -> the source of columns (column.lua) by the name of the field.
--- classes: a field of texts, which become i32 numbers from 0; source.classes lists the texts.
function M.columns(columns, name, classes)
  local sums, count, first, names = {}, nil, nil, nil
  if classes then
    arguments.need(columns[classes] ~= nil, "data", "classes", classes, "a field is needed")
    columns[classes], names = column.to_classes(columns[classes], classes)
  end
  for _, field in ipairs(tables.sorted_keys(columns)) do
    local c = columns[field]
    if count and c.count ~= count then
      lib.misuse("data: field '%s' has %d examples, but '%s' has %d", field, c.count, first, count)
    end
    count, first = c.count, first or field
    sums[#sums + 1] = ("%s-%08x"):format(field, c:checksum())
  end
  if not count then lib.misuse "data: there are no fields" end
  return setmetatable({columns = columns, count = count, name = name, ahead = 0, classes = names,
                       fingerprint = ("%d %s"):format(count, table.concat(sums, " "))}, Columns)
end

function Columns:open()
  return new_queue(function(numbers)
    local batch = {}
    for field, c in pairs(self.columns) do batch[field] = c:take(numbers) end
    return batch
  end)
end

--- arrays(given) -> the source of given.arrays, tensors and lists by the name of their field.
function M.arrays(given)
  local arrays, dtypes = given.arrays, given.dtypes or {}
  arguments.need(type(arrays) == "table" and not getmetatable(arrays) and #arrays == 0, "data",
                 "arrays", arrays, "tensors and lists by name are needed, {x = X, y = Y}")
  local columns = {}
  for field, values in pairs(arrays) do
    columns[field] = column.new(field, values, dtypes[field], function(i)
      return ("data: element %d"):format(i)
    end)
  end
  return M.columns(columns, "arrays", given.classes)
end

-- ### Functions

-- A batch of examples, {field = value} each. where(i) says in errors what example i is.
local function collate(examples, dtypes, where)
  local batch, names = {}, examples[1]
  for i, example in ipairs(examples) do
    for field in pairs(example) do
      if names[field] == nil then
        lib.misuse("%s has a field '%s', which the first example of the batch lacks", where(i),
                   tostring(field))
      end
    end
  end
  for field in pairs(names) do
    local values = {}
    for i, example in ipairs(examples) do
      if example[field] == nil then lib.misuse("%s has no field '%s'", where(i), field) end
      values[i] = example[field]
    end
    local c = column.new(field, values, dtypes[field], where)
    local all = {}
    for i = 1, #values do all[i] = i end
    batch[field] = c:take(all)
  end
  return batch
end

local function need_example(example, what)
  arguments.need(type(example) == "table" and not getmetatable(example) and #example == 0
                 and next(example) ~= nil, "data", what, example,
                 "a table of an example's fields is needed, {x = ..., y = ...}")
  return example
end

local Read = {}
Read.__index = Read

--- read(given) -> the source of the examples read(1) to read(count), tables {field = value}.
function M.read(given)
  local count = arguments.whole("data", "count, the number of examples,", given.count)
  return setmetatable({f = arguments.callable("data", given.read), count = count,
                       dtypes = given.dtypes or {}, name = "a function", ahead = 0,
                       fingerprint = ("read %d"):format(count)}, Read)
end

function Read:open()
  return new_queue(function(numbers)
    local examples = {}
    for i, number in ipairs(numbers) do
      examples[i] = need_example(self.f(number), ("read(%d)"):format(number))
    end
    return collate(examples, self.dtypes, function(i) return ("read(%d)"):format(numbers[i]) end)
  end)
end

local Stream = {}
Stream.__index = Stream

--- stream(given) -> the source of a stream: stream() -> a function that returns the next example at
--- each call, and nil at the end.
function M.stream(given)
  return setmetatable({f = arguments.callable("data", given.stream), dtypes = given.dtypes or {},
                       name = "a stream", ahead = 0, fingerprint = "stream"}, Stream)
end

-- Batches are asked for in order; after a restart or a resume, the examples before are skipped.
function Stream:open()
  local next_example, at
  local function advance()
    local example = next_example()
    if example == nil then return nil end
    at = at + 1
    return need_example(example, ("example %d of the stream"):format(at))
  end
  return new_queue(function(numbers)
    if not at or numbers[1] <= at then
      next_example, at = self.f(), 0
      arguments.need(type(next_example) == "function", "data", "the result of stream()",
                     next_example, "a function is needed that returns the next example")
    end
    while at < numbers[1] - 1 do
      if not advance() then return nil end
    end
    local examples = {}
    for i = 1, #numbers do
      examples[i] = advance()
      if not examples[i] then break end
    end
    return #examples > 0 and collate(examples, self.dtypes, function(i)
      return ("example %d of the stream"):format(numbers[i])
    end) or nil
  end)
end

return M
