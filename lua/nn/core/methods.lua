-- Methods and functions on tensors that are not ops of the registry: operators, shapes, and short
-- compositions of ops.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor

local M = {}

-- Operators. `*` is always elementwise; comparisons are methods, since Lua converts the results of
-- < and == to booleans. #x is 0, since LuaJIT ignores __len of tables; x:dim(1) is the size.
local function operator(name)
  return function(a, b)
    if not (is_tensor(a) or type(a) == "number") or not (is_tensor(b) or type(b) == "number") then
      lib.misuse("%s: cannot combine a %s and a %s", name, is_tensor(a) and "tensor" or type(a),
                 is_tensor(b) and "tensor" or type(b))
    end
    return ops.call(name, a, b)
  end
end
Tensor.__add, Tensor.__sub = operator "add", operator "sub"
Tensor.__mul, Tensor.__div = operator "mul", operator "div"
Tensor.__pow, Tensor.__mod = operator "pow", operator "remainder"
Tensor.__unm = function(a) return ops.call("neg", a) end
local function compare(sign, name)
  return function()
    lib.misuse("%s cannot compare two tensors; a:%s(b) gives a tensor of booleans", sign, name)
  end
end
Tensor.__lt, Tensor.__le = compare("< or >", "lt"), compare("<= or >=", "le")
-- Lua calls this for two different tensors only.
Tensor.__eq = compare("==", "eq")
Tensor.__concat = function(a, b) return tostring(a) .. tostring(b) end

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
--- x:split(parts, axis=-1) -> `parts` tensors of equal size along an axis; parts may also be a list
--- of sizes. Errors: the sizes do not add up to the size of the axis.
---     local a, b = x:split({1, 2})
---     b  --> {{2, 3}, {5, 6}}
function Tensor:split(parts, axis)
  axis = axis or -1
  local size, sizes = self:dim(axis), parts
  if type(parts) ~= "table" then
    arguments.whole("split", "the number of parts", parts)
    if size % parts ~= 0 then
      lib.misuse("split: size %d does not divide into %d parts", size, parts)
    end
    sizes = {}
    for i = 1, parts do sizes[i] = size / parts end
  end
  local out, at = {}, 1
  for i, n in ipairs(sizes) do
    arguments.whole("split", "a size", n)
    out[i] = self:slice(axis, at, at + n - 1)
    at = at + n
  end
  if at ~= size + 1 then
    lib.misuse("split: the sizes add up to %d, the axis has %d", at - 1, size)
  end
  return unpack(out)
end
--- x:masked_fill(mask, value): value where the mask is true, x elsewhere. The mask broadcasts.
---     x:masked_fill(x:gt(4), 0)  --> {{1, 2, 3}, {4, 0, 0}}
function Tensor:masked_fill(mask, value)
  arguments.need(is_tensor(mask), "masked_fill", "the mask", mask, "a tensor is needed")
  return mask:where(value, self)
end
--- nn.masked_fill(x, mask, value) is x:masked_fill(mask, value).
---     nn.masked_fill(nn.ones(2), nn.tensor{true, false}, 5)  --> {5, 1}
function M.masked_fill(x, mask, value)
  arguments.need(is_tensor(x), "masked_fill", "the first argument", x, "a tensor is needed")
  return x:masked_fill(mask, value)
end
--- nn.stack{a, b, ...} joins tensors of one shape along a new first axis. Errors: other shapes.
---     nn.stack{nn.zeros(2), nn.ones(2)}  --> {{0, 0}, {1, 1}}
function M.stack(list)
  if is_tensor(list) then lib.misuse("stack: takes a list of tensors, {a, b, ...}") end
  local out = {}
  for i = 1, arguments.list("stack", "the argument", list) do
    local t = list[i]
    arguments.need(is_tensor(t), "stack", "element " .. i, t, "a tensor is needed")
    out[i] = t:unsqueeze(1)
  end
  return ops.call("cat", out, 1)
end
--- nn.mse(x, y) -> mean of (x - y)^2 over all elements; shapes broadcast. Each is a tensor or a
--- number.
---     nn.mse(x, 0):item()  --> 15.1667
function M.mse(x, y) return ops.call("sub", x, y):square():mean() end

return M
