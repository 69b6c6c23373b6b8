-- Labelled examples for training a classifier, such as images in memory. A training batch consists
-- of examples drawn at random, which depend only on the seed and a counter, so a checkpoint stores
-- just the counter. The methods are those of the loaders of nn.data.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local creation = require "nn.core.creation"
local loader = require "nn.data.loader"
local files = require "nn.io.files"

local M = {}
local Examples = {}
Examples.__index = Examples

local known = arguments.names "values labels shape count batch seed name context"

--- new{values=, labels=, shape=, count=, batch=, seed=0, name="examples", context=1} -> examples.
--- values: a float array with the elements of `count` examples, each of `shape`; labels: an int32_t
--- array; batch: examples in a batch; context: into how many tokens a model divides an example, for
--- speeds.
function M.new(given)
  arguments.options("examples", given, known)
  arguments.whole("examples", "count", given.count)
  arguments.whole("examples", "batch", given.batch)
  local self = setmetatable({counter = 0, seed = given.seed or 0}, Examples)
  self.values, self.labels, self.shape = given.values, given.labels, given.shape
  self.size = 1
  for _, extent in ipairs(given.shape) do self.size = self.size * extent end
  self.count, self.name, self.context = given.count, given.name or "examples", given.context or 1
  self.rows, self.batch_size = given.batch, given.batch
  local crc = files.crc32(self.values, self.count * self.size * 4)
  self.fingerprint = ("%08x"):format(files.crc32(self.labels, self.count * 4, crc))
  return self
end

-- The examples with these numbers, from 0, as two tensors.
local function tensors_of(self, numbers)
  local rows, size = #numbers, self.size
  local values, labels = ffi.new("float[?]", rows * size), ffi.new("int32_t[?]", rows)
  for row, number in ipairs(numbers) do
    ffi.copy(values + (row - 1) * size, self.values + number * size, size * 4)
    labels[row - 1] = self.labels[number]
  end
  return creation.from_host(values, {rows, unpack(self.shape)}, "f32"),
         creation.from_host(labels, {rows}, "i32")
end

--- examples:batch() -> values (batch, ...) f32, labels (batch) i32, drawn with replacement.
function Examples:batch()
  local numbers = {}
  for row = 1, self.rows do
    local drawn = loader.random(self.seed, self.counter * self.rows + row)
    numbers[row] = math.floor(drawn * self.count)
  end
  self.counter = self.counter + 1
  return tensors_of(self, numbers)
end

--- examples:windows() -> iterator of values, labels, rows over all examples in order, and twice the
--- number of its batches, of which the last may have fewer rows: see those of nn.data's loaders.
function Examples:windows()
  local done = 0
  return function()
    if done >= self.count then return nil end
    local numbers = {}
    for row = 1, math.min(self.rows, self.count - done) do numbers[row] = done + row - 1 end
    done = done + #numbers
    local values, labels = tensors_of(self, numbers)
    return values, labels, #numbers
  end, math.ceil(self.count / self.rows), math.ceil(self.count / self.rows)
end

--- examples:inputs(rows) -> tensors like those of a batch of `rows` examples, for plans.
function Examples:inputs(rows)
  return creation.zeros({rows, unpack(self.shape)}), creation.zeros({rows}, {dtype = "i32"})
end

--- examples:state(), examples:set_state(state), examples:batch_tokens(): as those of nn.data's
--- loaders.
Examples.state, Examples.set_state = loader.state, loader.set_state

function Examples:batch_tokens() return self.rows * self.context end

return M
