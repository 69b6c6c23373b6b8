-- Tensors under other shapes: views, pieces, joined tensors, and elements in another order.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor

local M = setmetatable({}, {__index = tensor.functions})

--- x:transpose(a, b) swaps two axes.
---     x:transpose(1, 2)  --> {{1, 4}, {2, 5}, {3, 6}}
function Tensor:transpose(a, b)
  local order, n = {}, #self.shape
  for i = 1, n do order[i] = i end
  a, b = arguments.axis("transpose", a, n), arguments.axis("transpose", b, n)
  order[a], order[b] = order[b], order[a]
  return self:permute(order)
end
--- x:t() swaps the last two axes.
---     x:t():dims()  --> 3, 2
function Tensor:t() return self:transpose(-2, -1) end
--- x:view(shape) is x:reshape(shape).
---     x:view(-1)  --> {1, 2, 3, 4, 5, 6}
Tensor.view = Tensor.reshape
-- In the sizes given to expand, -1 keeps the size of x, as in PyTorch.
local expand = ops.functions.expand
function ops.functions.expand(x, first, ...)
  local shape = {unpack(type(first) == "table" and first or {first, ...})}
  for i, size in ipairs(shape) do
    if size == -1 and is_tensor(x) then shape[i] = x.shape[i + #x.shape - #shape] or -1 end
  end
  return expand(x, shape)
end
Tensor.expand = ops.functions.expand
--- x:unsqueeze(axis) inserts an axis of size 1 at that position.
---     x:unsqueeze(1):dims()  --> 1, 2, 3
function Tensor:unsqueeze(axis)
  local shape = {unpack(self.shape)}
  table.insert(shape, arguments.axis("unsqueeze", axis, #shape + 1), 1)
  return self:reshape(shape)
end
--- x:squeeze(axis) removes an axis of size 1, x:squeeze() all of them. Errors: another size.
---     nn.zeros(1, 3, 1):squeeze():dims()  --> 3
function Tensor:squeeze(axis)
  local shape = {}
  axis = axis and arguments.axis("squeeze", axis, #self.shape)
  if axis and self.shape[axis] ~= 1 then
    lib.misuse("squeeze: axis %d has size %d, not 1", axis, self.shape[axis])
  end
  for i, size in ipairs(self.shape) do
    local dropped = size == 1 and (axis == nil or axis == i)
    if not dropped then shape[#shape + 1] = size end
  end
  return self:reshape(shape)
end
--- x:flatten(first=1, last=-1) merges the axes first to last into one.
---     nn.zeros(2, 3, 4):flatten(2):dims()  --> 2, 12
function Tensor:flatten(first, last)
  local n = #self.shape
  if n == 0 then return self:reshape(1) end
  first, last = arguments.axis("flatten", first or 1, n), arguments.axis("flatten", last or -1, n)
  if first > last then lib.misuse("flatten: axis %d comes after axis %d", first, last) end
  local shape = {}
  for i, size in ipairs(self.shape) do
    if i > first and i <= last then
      shape[#shape] = shape[#shape] * size
    else
      shape[#shape + 1] = size
    end
  end
  return self:reshape(shape)
end
--- x:movedim(from, to) moves an axis to another position; the others keep their order.
---     nn.zeros(2, 3, 4):movedim(1, 3):dims()  --> 3, 4, 2
function Tensor:movedim(from, to)
  local order, n = {}, #self.shape
  for i = 1, n do order[i] = i end
  local axis = table.remove(order, arguments.axis("movedim", from, n))
  table.insert(order, arguments.axis("movedim", to, n), axis)
  return self:permute(order)
end

--- x:split(size, axis=1) -> pieces of `size` elements along an axis, the last of which may be
--- smaller; or of the sizes in a list. x:chunk(n) makes n pieces. Errors: the sizes do not add up
--- to the size of the axis.
---     local a, b = x:split(2, -1)
---     b  --> {{3}, {6}}
---     local c, d = x:split({1, 2}, -1)
---     d  --> {{2, 3}, {5, 6}}
function Tensor:split(sizes, axis)
  axis = arguments.axis("split", axis or 1, #self.shape)
  local total, out, at = self.shape[axis], {}, 0
  if type(sizes) ~= "table" then
    local size = arguments.whole("split", "the size of a piece", sizes)
    sizes = {}
    for first = 0, total - 1, size do sizes[#sizes + 1] = math.min(size, total - first) end
  end
  for i = 1, arguments.list("split", "the list of sizes", sizes) do
    local n = arguments.whole("split", "a size", sizes[i])
    if at + n > total then break end
    out[i] = self:slice(axis, at + 1, at + n)
    at = at + n
  end
  if at ~= total or #out ~= #sizes then
    local sum = 0
    for _, n in ipairs(sizes) do sum = sum + n end
    lib.misuse("split: the sizes add up to %d, the axis has %d", sum, total)
  end
  return unpack(out)
end
--- x:chunk(parts, axis=1) -> at most `parts` pieces of equal size along an axis; the last one is
--- smaller if the size of the axis is no multiple.
---     local a, b = x:chunk(2)
---     b  --> {{4, 5, 6}}
function Tensor:chunk(parts, axis)
  axis = arguments.axis("chunk", axis or 1, #self.shape)
  arguments.whole("chunk", "the number of parts", parts)
  return self:split(math.ceil(self.shape[axis] / parts), axis)
end
--- x:select(axis, index) -> x at one index of an axis, counted from 1, without that axis.
---     x:select(2, -1)  --> {3, 6}
function Tensor:select(axis, index)
  axis = arguments.axis("select", axis, #self.shape)
  return self:slice(axis, index, index):squeeze(axis)
end
--- x:unbind(axis=1) -> x:select(axis, 1), x:select(axis, 2), ...
---     local a, b = x:unbind()
---     b  --> {4, 5, 6}
function Tensor:unbind(axis)
  axis = arguments.axis("unbind", axis or 1, #self.shape)
  local out = {}
  for i = 1, self.shape[axis] do out[i] = self:select(axis, i) end
  return unpack(out)
end

-- A list of axes as positive numbers, of an axis or a list.
local function axes_of(who, axes, rank)
  if type(axes) ~= "table" then return {arguments.axis(who, axes, rank)} end
  local out, seen = {}, {}
  for i = 1, arguments.list(who, "the axes", axes) do
    out[i] = arguments.axis(who, axes[i], rank)
    if seen[out[i]] then lib.misuse("%s: axis %d is given twice", who, out[i]) end
    seen[out[i]] = true
  end
  return out
end

--- x:flip(axes) -> the elements in reverse order along an axis or a list of axes.
---     x:flip(2)  --> {{3, 2, 1}, {6, 5, 4}}
function Tensor:flip(axes)
  local y = self
  for _, axis in ipairs(axes_of("flip", axes, #self.shape)) do
    local n, shape = self.shape[axis], {}
    for i = 1, #self.shape do shape[i] = i == axis and n or 1 end
    local order = ops.call("arange", n, {start = n - 1, step = -1, dtype = "i32"})
    y = y:gather(order:reshape(shape):expand(self.shape), {axis = axis})
  end
  return y
end
--- x:roll(shifts, axes) -> the elements moved `shifts` positions along an axis; those that leave at
--- the end return at the start. Both may be lists of equal length. Without axes, x is rolled as one
--- row and keeps its shape.
---     x:roll(1, 2)  --> {{3, 1, 2}, {6, 4, 5}}
function Tensor:roll(shifts, axes)
  if axes == nil then return self:reshape(-1):roll(shifts, 1):reshape(self.shape) end
  axes = axes_of("roll", axes, #self.shape)
  shifts = type(shifts) == "table" and shifts or {shifts}
  if #shifts ~= #axes then
    lib.misuse("roll: %d shifts are given for %d axes", #shifts, #axes)
  end
  local y = self
  for i, axis in ipairs(axes) do
    local n = self.shape[axis]
    local shift = arguments.whole("roll", "a shift", shifts[i], -2 ^ 53) % n
    if shift > 0 then
      y = ops.call("cat", {y:slice(axis, n - shift + 1), y:slice(axis, 1, n - shift)}, axis)
    end
  end
  return y
end

-- x with `count` copies of each element (inner), or of the whole, along an axis.
local function copies(x, axis, count, inner)
  if count == 1 then return x end
  local shape, result = {unpack(x.shape)}, {unpack(x.shape)}
  table.insert(shape, inner and axis + 1 or axis, count)
  result[axis] = result[axis] * count
  return x:unsqueeze(inner and axis + 1 or axis):expand(shape):reshape(result)
end
--- x:tile(counts) -> x repeated counts[i] times along axis i, a list or several numbers; fewer
--- counts than axes are for the last axes.
---     nn.tensor{1, 2}:tile(2, 2)  --> {{1, 2, 1, 2}, {1, 2, 1, 2}}
function Tensor:tile(...)
  local first = ...
  local counts = type(first) == "table" and first or {...}
  local y = self
  for _ = #self.shape + 1, arguments.list("tile", "the counts", counts) do y = y:unsqueeze(1) end
  local skipped = #y.shape - #counts
  for i, count in ipairs(counts) do
    y = copies(y, skipped + i, arguments.whole("tile", "a count", count))
  end
  return y
end
--- x:repeat_interleave(count, axis) -> each element `count` times in a row along an axis; without
--- an axis, of x as one row.
---     nn.tensor{1, 2}:repeat_interleave(2)  --> {1, 1, 2, 2}
function Tensor:repeat_interleave(count, axis)
  arguments.whole("repeat_interleave", "the count", count)
  if axis == nil then return self:reshape(-1):repeat_interleave(count, 1) end
  return copies(self, arguments.axis("repeat_interleave", axis, #self.shape), count, true)
end

-- What pad puts before and after an axis, by mode: a function of x, the axis, the number of
-- elements and whether they are at the end.
local margins = {}
function margins.constant(x, axis, n, _, value)
  local shape = {unpack(x.shape)}
  shape[axis] = n
  return ops.call("full", shape, value, {dtype = x.dtype})
end
function margins.replicate(x, axis, n, at_end)
  return copies(x:slice(axis, at_end and -1 or 1, at_end and -1 or 1), axis, n)
end
function margins.reflect(x, axis, n, at_end)
  local size = x.shape[axis]
  return x:slice(axis, at_end and size - n or 2, at_end and size - 1 or n + 1):flip(axis)
end
function margins.circular(x, axis, n, at_end)
  local size = x.shape[axis]
  return x:slice(axis, at_end and 1 or size - n + 1, at_end and n or size)
end
local modes = {}
for name in pairs(margins) do modes[name] = true end

local function padded(x, axis, before, after, mode, value)
  for _, n in ipairs {before, after} do arguments.whole("pad", "a width", n, -2 ^ 53) end
  local cut = x
  if before < 0 or after < 0 then
    cut = x:slice(axis, 1 + math.max(0, -before), x.shape[axis] + math.min(0, after))
  end
  if mode == "circular" then x = cut end
  local largest = mode == "reflect" and x.shape[axis] - 1 or mode == "circular" and x.shape[axis]
  for _, n in ipairs {before, after} do
    if largest and n > largest then
      lib.misuse("pad: mode '%s' adds at most %d elements to axis %d of %s, not %d", mode, largest,
                 axis, tensor.shape_text(x.shape), n)
    end
  end
  local parts = {}
  if before > 0 then parts[1] = margins[mode](x, axis, before, false, value) end
  parts[#parts + 1] = cut
  if after > 0 then parts[#parts + 1] = margins[mode](x, axis, after, true, value) end
  return #parts == 1 and cut or ops.call("cat", parts, axis)
end

--- x:pad(widths, {mode="constant", value=0}) -> x with more elements at the ends of its axes.
--- widths: {before, after} for the last axis, then two numbers for the one before it, and so on, as
--- in PyTorch; negative ones cut elements off. mode: "constant" (value), "reflect", "replicate" or
--- "circular".
---     nn.tensor{1, 2, 3}:pad({1, 2})  --> {0, 1, 2, 3, 0, 0}
---     nn.tensor{1, 2, 3}:pad({2, 0}, {mode = "reflect"})  --> {3, 2, 1, 2, 3}
function Tensor:pad(widths, options)
  options = arguments.options("pad", options, {mode = true, value = true})
  local mode, n = options.mode or "constant", arguments.list("pad", "the list of widths", widths)
  if not modes[mode] then
    lib.misuse("pad: mode is %s; one of constant, reflect, replicate, circular is needed",
               arguments.describe(mode))
  end
  if n % 2 ~= 0 or n / 2 > #self.shape then
    lib.misuse("pad: %d widths are given for %s; two an axis are needed, the last axis first", n,
               tensor.shape_text(self.shape))
  end
  local y = self
  for i = 1, n, 2 do
    local axis = #self.shape - (i - 1) / 2
    y = padded(y, axis, widths[i], widths[i + 1], mode, options.value or 0)
  end
  return y
end

--- nn.stack({a, b, ...}, axis=1) joins tensors of one shape along a new axis. Errors: other shapes.
---     nn.stack{nn.zeros(2), nn.ones(2)}  --> {{0, 0}, {1, 1}}
---     nn.stack({nn.zeros(2), nn.ones(2)}, 2)  --> {{0, 1}, {0, 1}}
function M.stack(list, axis)
  if is_tensor(list) then lib.misuse("stack: takes a list of tensors, {a, b, ...}") end
  if type(axis) == "table" then axis = arguments.options("stack", axis, {axis = true}).axis end
  local out = {}
  for i = 1, arguments.list("stack", "the argument", list) do
    local t = list[i]
    arguments.need(is_tensor(t), "stack", "element " .. i, t, "a tensor is needed")
    out[i] = t:unsqueeze(axis or 1)
  end
  return ops.call("cat", out, axis or 1)
end
--- nn.meshgrid(a, b, ...) -> for each vector a tensor of shape (a's size, b's size, ...) that
--- repeats it along its own axis (PyTorch's indexing="ij").
---     local rows, columns = nn.meshgrid(nn.tensor{1, 2}, nn.tensor{3, 4, 5})
---     columns  --> {{3, 4, 5}, {3, 4, 5}}
function M.meshgrid(...)
  local vectors, shape, out = {...}, {}, {}
  for i, v in ipairs(vectors) do
    tensor.need("meshgrid", "argument", v)
    if #v.shape ~= 1 then
      lib.misuse("meshgrid: argument %d is %s; one axis is needed", i, tensor.shape_text(v.shape))
    end
    shape[i] = v:dim(1)
  end
  for i, v in ipairs(vectors) do
    local own = {}
    for k = 1, #vectors do own[k] = k == i and shape[i] or 1 end
    out[i] = v:reshape(own):expand(shape)
  end
  return unpack(out)
end

return M
