-- Elements and slices by masks, by tensors of positions and by lists; random choices. Positions in
-- tensors count from 0, because they are data, like token ids and the results of argmax; those in
-- Lua lists count from 1, like all of Lua's.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local is_scalar = require("nn.core.scalar").is_scalar
local tensor = require "nn.core.tensor"
local wide_uniform = require("nn.core.creation").wide_uniform
local is_tensor, shape_text, Tensor = tensor.is_tensor, tensor.shape_text, tensor.Tensor

local function from_positions(array, shape)
  return ops.call("empty", shape, {dtype = "i64"}):copy_from_host(array)
end

-- Position `at` of a list, from 0.
local function position(who, i, at, size)
  local from_start = type(at) == "number" and at < 0 and size + at + 1 or at
  if type(at) ~= "number" or at % 1 ~= 0 or from_start < 1 or from_start > size then
    lib.misuse("%s: position %d is %s; lists hold 1 to %d, or -1 to -%d from the end", who, i,
               arguments.describe(at), size, size)
  end
  return from_start - 1
end

-- A tensor of positions on an axis of `size` elements, from itself or from a Lua list. A recording
-- takes no host data, so there each position is a tensor.
local function positions(who, index, size)
  if is_tensor(index) then return index end
  local n = arguments.list(who, "the index", index)
  if n == 0 then lib.misuse("%s: the list of positions is empty, and no tensor is", who) end
  local array, constants = ffi.new("int64_t[?]", n), {}
  for i, at in ipairs(index) do
    local from_0 = position(who, i, at, size)
    array[i - 1] = from_0
    if engine.recording() then constants[i] = ops.call("full", {1}, from_0, {dtype = "i64"}) end
  end
  return #constants > 0 and ops.call("cat", constants, 1) or from_positions(array, {n})
end

-- The axis, and the tensor of one axis with positions on it.
local function slices(who, x, axis, index)
  axis = arguments.axis(who, axis, #x.shape)
  index = positions(who, index, x.shape[axis])
  if #index.shape ~= 1 then
    lib.misuse("%s: the index is %s; a list or a tensor of one axis is needed", who,
               shape_text(index.shape))
  end
  return axis, index
end

-- Checks that `source` is x with as many slices along the axis as the index has.
local function need_source(who, x, axis, index, source)
  arguments.need(is_tensor(source), who, "the source", source, "a tensor is needed")
  local shape = {unpack(x.shape)}
  shape[axis] = index.shape[1]
  if shape_text(source.shape) ~= shape_text(shape) then
    lib.misuse("%s: the source is %s where %s is needed", who, shape_text(source.shape),
               shape_text(shape))
  end
end

--- x:index_select(axis, index) -> the slices of x along an axis in the order of `index`: a tensor
--- of one axis with 0-based positions (i32 or i64), or a Lua list with positions from 1, negative
--- ones from the end. Errors: a position outside the axis.
---     x:index_select(2, {3, 1})  --> {{3, 1}, {6, 4}}
---     x:index_select(2, nn.tensor({2, 0}, {dtype = "i64"}))  --> {{3, 1}, {6, 4}}
function Tensor:index_select(axis, index)
  axis, index = slices("index_select", self, axis, index)
  return self:gather(index, axis)
end
--- x:index_add(axis, index, source) -> x plus slice j of source at position index[j] of the axis,
--- for all j; see x:index_select.
---     x:index_add(2, {1, 1}, nn.ones(2, 2))  --> {{3, 2, 3}, {6, 5, 6}}
function Tensor:index_add(axis, index, source)
  axis, index = slices("index_add", self, axis, index)
  need_source("index_add", self, axis, index, source)
  return self + source:scatter_add(index, {size = self.shape[axis], axis = axis})
end
--- x:index_copy(axis, index, source) -> x with slice j of source at position index[j] of the axis,
--- for all j, of which the last one wins; see x:index_select.
---     x:index_copy(2, {-1}, nn.zeros(2, 1))  --> {{1, 2, 0}, {4, 5, 0}}
function Tensor:index_copy(axis, index, source)
  axis, index = slices("index_copy", self, axis, index)
  need_source("index_copy", self, axis, index, source)
  return self:scatter(index, source, axis)
end
--- x:index_fill(axis, index, value) -> x with a number in the slices at these positions of the
--- axis; see x:index_select.
---     x:index_fill(2, {1, 3}, 0)  --> {{0, 2, 0}, {0, 5, 0}}
function Tensor:index_fill(axis, index, value)
  arguments.need(type(value) == "number" or is_scalar(value), "index_fill", "the value", value,
                 "a number is needed")
  axis, index = slices("index_fill", self, axis, index)
  return self:scatter(index, value, axis)
end

-- The row-major positions of all nonzero elements, as an array, and their number.
local function nonzero_positions(who, x)
  if engine.recording() then
    lib.misuse("%s: the shape of its result depends on values, which a compiled function does not "
               .. "read; nn.where(mask, x, 0) and x:masked_fill(mask, value) keep the shape", who)
  end
  local numbers, n = x:numbers()
  local list, count = ffi.new("int64_t[?]", n), 0
  for i = 0, n - 1 do
    if numbers[i] ~= 0 then
      list[count] = i
      count = count + 1
    end
  end
  if count == 0 then
    lib.misuse("%s: no element is selected, and no tensor is empty; test mask:sum():item() > 0 "
               .. "first", who)
  end
  return list, count
end

--- x:nonzero() -> the positions of all elements that are not 0 (or false), as an i64 tensor of
--- (number, axes of x): 0-based, in row-major order. Reads x, so it waits for its value. Errors: no
--- element is nonzero; inside nn.compile, where the number is unknown.
---     x:gt(4):nonzero()  --> {{1, 1}, {1, 2}}
function Tensor:nonzero()
  local flat, count = nonzero_positions("nonzero", self)
  local rank = math.max(1, #self.shape)
  local array = ffi.new("int64_t[?]", count * rank)
  for i = 0, count - 1 do
    local rest = flat[i]
    for axis = rank, 1, -1 do
      local size = self.shape[axis] or 1
      array[i * rank + axis - 1] = rest % size
      rest = rest / size
    end
  end
  return from_positions(array, {count, rank})
end

-- x with its first axes, which have the shape of the mask, reduced to the selected elements.
local function select_by_mask(who, x, mask)
  local flat, count = nonzero_positions(who, mask)
  local shape = {-1, unpack(x.shape, #mask.shape + 1)}
  return x:reshape(shape):gather(from_positions(flat, {count}), 1)
end

--- x:masked_select(mask) -> the elements of x for which the mask is true, as a tensor of one axis.
--- The mask broadcasts to x's shape. Reads the mask, so it waits for its value. Errors: nothing is
--- selected; inside nn.compile, where the number is unknown (nn.where keeps the shape).
---     x:masked_select(x:gt(4))  --> {5, 6}
function Tensor:masked_select(mask)
  if not is_tensor(mask) or mask.dtype ~= "bool" then
    lib.misuse("masked_select: the mask is %s; a tensor of booleans is needed, such as x:gt(0)",
               is_tensor(mask) and mask.dtype or arguments.describe(mask))
  end
  local extra, fits = #self.shape - #mask.shape, #mask.shape <= #self.shape
  for axis, size in ipairs(mask.shape) do
    fits = fits and (size == 1 or size == self.shape[axis + extra])
  end
  if not fits then
    lib.misuse("masked_select: the mask is %s, which does not broadcast to x, %s",
               shape_text(mask.shape), shape_text(self.shape))
  end
  return select_by_mask("masked_select", self, mask:expand(self.shape))
end

--- x:index(key), or x[key], for reading. The key is a mask, whose shape is that of x or of its
--- first axes: the selected elements or slices; a tensor of 0-based positions on the first axis
--- (i32 or i64): the slices, in the key's shape; or a Lua list of positions from 1 on it.
--- Errors: as x:masked_select and x:index_select.
---     x[x:gt(4)]  --> {5, 6}
---     x[{2, 1, 2}]  --> {{4, 5, 6}, {1, 2, 3}, {4, 5, 6}}
---     x:index(nn.tensor({{1}, {0}}, {dtype = "i32"})):dims()  --> 2, 1, 3
function Tensor:index(key)
  if not is_tensor(key) then return self:index_select(1, key) end
  if key.dtype == "bool" then
    local fits = #key.shape > 0 and #key.shape <= #self.shape
    for axis, size in ipairs(key.shape) do fits = fits and size == self.shape[axis] end
    if not fits then
      lib.misuse("index: the mask is %s, x is %s; it needs x's shape or that of x's first axes",
                 shape_text(key.shape), shape_text(self.shape))
    end
    return select_by_mask("index", self, key)
  end
  local shape = {unpack(key.shape)}
  for axis = 2, #self.shape do shape[#shape + 1] = self.shape[axis] end
  return self:gather(key:reshape(-1), 1):reshape(shape)
end

-- PyTorch's order of arguments, the axis before the index, is accepted too.
local axis_first = {
  gather = function(op, x, axis, index) return op(x, index, axis) end,
  scatter = function(op, x, axis, index, src) return op(x, index, src, axis) end,
  scatter_add = function(op, x, axis, index, src)
    return x + op(src, index, {size = x:dim(axis), axis = axis})
  end,
}
for name, call in pairs(axis_first) do
  local op = ops.functions[name]
  Tensor[name] = function(x, axis, index, ...)
    if type(axis) == "number" and is_tensor(index) then return call(op, x, axis, index, ...) end
    return op(x, axis, index, ...)
  end
  ops.functions[name] = Tensor[name]
end

--- x:softmin(axis=-1) is (-x):softmax(axis).
---     nn.tensor{0, 1}:softmin()  --> {0.7311, 0.2689}
function Tensor:softmin(axis) return (-self):softmax(axis) end

local function check_weights(x, n, replacement)
  local sums = x:sum(-1)
  local valid = x:min():ge(0):item() and sums:min():gt(0):item() and sums:max():lt(1 / 0):item()
  if not valid then
    lib.misuse("multinomial: each row needs finite weights of at least 0 that are not all 0")
  end
  local most = not replacement and x:gt(0):sum(-1):min():item()
  if most and n > most then
    lib.misuse("multinomial: %d draws without replacement from %d positive weights", n, most)
  end
end

local known = arguments.names "replacement"

--- x:multinomial(n, {replacement=false}) -> 0-based positions drawn from each row of x (its last
--- axis) with probabilities proportional to the elements, as i64: (..., n). The draws follow from
--- nn.seed, for any tiling. x:multinomial(n, true) draws with replacement, too. Errors: negative or
--- infinite weights, rows of zeros, more draws without replacement than positive weights; inside
--- nn.compile the weights are not checked.
---     nn.tensor{0, 3, 0}:multinomial(4, {replacement = true})  --> {1, 1, 1, 1}
---     nn.tensor{{1, 0, 0}, {0, 0, 2}}:multinomial(1)  --> {{0}, {2}}
function Tensor:multinomial(n, options)
  if type(options) == "boolean" then options = {replacement = options} end
  local replacement = arguments.options("multinomial", options, known).replacement
  if not self.dtype:find "f" or #self.shape == 0 then
    lib.misuse("multinomial: x is %s %s; a float tensor with an axis is needed", self.dtype,
               shape_text(self.shape))
  end
  arguments.whole("multinomial", "the number of draws", n)
  local weights = self:detach():to("f64")
  if not engine.recording() then check_weights(weights, n, replacement) end
  if n > 1 and not replacement then
    local _, drawn = (weights / -(wide_uniform(self.shape) + 2 ^ -49):log()):topk(n)   -- a race
    return drawn
  end
  local upto, shape = weights:cumsum(), {unpack(self.shape)}
  shape[#shape] = n
  return upto:searchsorted(wide_uniform(shape) * upto:slice(-1, -1, -1), {right = true})
end

return tensor.functions
