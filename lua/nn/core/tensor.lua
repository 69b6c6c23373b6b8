-- Tensors as scripts see them: a small table over an engine handle. op.lua adds a method for every
-- op of the registry, methods.lua operators and more, tape.lua backward(), show.lua how they print.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local hints = require "nn.base.hints"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"
local C, check = lib.C, lib.check

local M = {}
local Tensor = {type_name = "tensor"}
Tensor.__index = Tensor
M.Tensor = Tensor

--- nn.is_tensor(value) -> whether it is a tensor.
---     nn.is_tensor(x), nn.is_tensor(1)  --> true, false
function M.is_tensor(x) return getmetatable(x) == Tensor end
local is_tensor = M.is_tensor

local info = ffi.new "nn_tensor_info"
local created = 0

--- Wraps a handle that the engine made; the collector releases it.
function M.wrap(slot, generation)
  local ref = ffi.gc(ffi.new("nn_ref", slot, generation), C.nn_release)
  check(C.nn_tensor_info_get(ref, info))
  local shape = {}
  for i = 1, info.rank do shape[i] = tonumber(info.shape[i - 1]) end
  created = created + 1
  -- A recording holds no memory, whatever its tensors' sizes.
  if info.temporary == 0 then lib.count_bytes(tonumber(info.bytes)) end
  local x = {ref = ref, shape = shape, dtype = lib.dtypes[info.dtype], order = created}
  return setmetatable(x, Tensor)
end

--- x:dims() -> sizes of all axes, as several results.
---     x:dims()  --> 2, 3
function Tensor:dims() return unpack(self.shape) end

--- x:dim(axis) -> its size; axis from 1, negative from the end. Errors: an axis that x has not.
---     x:dim(-1)  --> 3
function Tensor:dim(axis) return self.shape[arguments.axis("dim", axis, #self.shape)] end

--- x:count() -> number of elements.
---     x:count()  --> 6
function Tensor:count()
  local n = 1
  for _, size in ipairs(self.shape) do n = n * size end
  return n
end

--- x:bytes() -> its size in bytes.
---     x:bytes()  --> 24
function Tensor:bytes() return self:count() * lib.dtype_size[self.dtype] end

--- x:memory_nodes() -> {{name = "RAM", bytes = 4096}, {name = "GPU 0", bytes = 0}}: how many bytes
--- of its value each memory node of the machine holds now. Several nodes may hold a value; none
--- holds one that is not computed yet.
---     x:memory_nodes()[1].name, x:memory_nodes()[1].bytes  --> "RAM", 24
function Tensor:memory_nodes()
  local room = 64
  local bytes, count = ffi.new("int64_t[?]", room), ffi.new("int32_t[1]", room)
  check(C.nn_tensor_nodes(self.ref, bytes, count))
  local list, name = {}, ffi.new "const char *[1]"
  for i = 0, count[0] - 1 do
    check(C.nn_node_name(i, name))
    list[i + 1] = {name = ffi.string(name[0]), bytes = tonumber(bytes[i])}
  end
  return list
end

--- x:release() gives the tensor's memory back now instead of when the collector comes by. Using it
--- afterwards is an error.
---     local y = nn.zeros(1000, 1000)
---     y:release()
---     y:sum()  --> error: ...
function Tensor:release()
  check(C.nn_release(self.ref))
end

--- x:host() -> array, count. A copy in host memory, row-major: float* for f32, double*, uint16_t*
--- (bf16), int32_t*, int64_t*, uint8_t* (u8, bool). Waits for the value. The array is 0-based and
--- freed when no longer referred to.
---     local array, count = x:host()
---     array[0], array[count - 1]  --> 1, 6
function Tensor:host()
  local n = self:count()
  local array = ffi.new(lib.host_type[self.dtype] .. "[?]", n)
  check(C.nn_read(self.ref, array, n * lib.dtype_size[self.dtype]))
  return array, n
end

local function element_type(array)
  return tostring(ffi.typeof(array)):gsub("const ", ""):match "^ctype<(.-) [%[%(&]*%[.*%]>$"
end

-- What is wrong with host memory for a tensor, or nil. A pointer's room cannot be known.
local function mismatch(x, array)
  local needed = x:bytes()
  if type(array) == "string" then
    return #array ~= needed and ("a text of %d bytes"):format(#array)
  elseif type(array) ~= "cdata" then
    return arguments.describe(array)
  end
  local element = element_type(array)
  if not element then return not tostring(ffi.typeof(array)):find "%*" and "no array" end
  local own = element_type(ffi.typeof(lib.host_type[x.dtype] .. "[1]"))
  if element ~= own and not element:find "char$" then return "an array of " .. element end
  local bytes = ffi.sizeof(array)
  return bytes < needed and ("an array of %d bytes"):format(bytes)
end

--- x:copy_from_host(array) fills x from a row-major array of its own host type (see host()), once
--- all earlier uses of x are done. Bytes (a string, a char array) are taken as they are.
--- Errors: too few bytes, or elements of another type. A pointer is believed.
---     nn.empty(2):copy_from_host(require("ffi").new("float[2]", 7, 8))  --> {7, 8}
function Tensor:copy_from_host(array)
  local wrong = mismatch(self, array)
  if wrong then
    lib.misuse("copy_from_host: %s is given; %s %s needs %d bytes, as %s or as a text", wrong,
               self.dtype, M.shape_text(self.shape), self:bytes(),
               lib.host_type[self.dtype] .. "[?]")
  end
  check(C.nn_write(self.ref, array, self:bytes()))
  return self
end

--- x:numbers() -> a double array of all elements, whatever the dtype, and their count.
---     local array, count = x:to("bf16"):numbers()
---     array[0], count  --> 1, 6
function Tensor:numbers()
  local array, n = self:host()
  local out = ffi.new("double[?]", n)
  check(C.nn_copy_f64(array, lib.dtype_number[self.dtype], n, out))
  return out, n
end

--- x:item() -> the value of a tensor of one element, as a number (bool: true or false). Waits until
--- it is computed. Errors: more elements than one.
---     x:mean():item()  --> 3.5
function Tensor:item()
  if self:count() ~= 1 then
    lib.misuse("item: the tensor is %s; only one with a single element is a number",
               M.shape_text(self.shape))
  end
  local value = self:numbers()[0]
  if self.dtype == "bool" then return value ~= 0 end
  return value
end

--- x:at(i, j, ...) -> one element, as item() gives it; indices from 1, negative from the end.
--- Errors: another number of indices than of axes; an index outside its axis.
---     x:at(2, -1)  --> 6
---     x:at(3, 1)  --> error: at: there is no element 3 on axis 1 of (2,3); they count from 1
function Tensor:at(...)
  local y, shape = self, self.shape
  if select("#", ...) ~= #shape then
    lib.misuse("at: %d indices are given for %s, which has %d axes", select("#", ...),
               M.shape_text(shape), #shape)
  end
  for axis, index in ipairs {...} do
    if type(index) ~= "number" or index % 1 ~= 0 or index == 0 or math.abs(index) > shape[axis] then
      lib.misuse("at: there is no element %s on axis %d of %s; they count from 1", tostring(index),
                 axis, M.shape_text(shape))
    end
    y = y:slice(axis, index, index)
  end
  return y:item()
end

--- x:table() -> nested Lua tables of numbers or booleans; of a scalar its value.
---     x:table()[2][1]  --> 4
function Tensor:table()
  local numbers = self:numbers()
  local at = -1
  local function build(axis)
    if axis > #self.shape then
      at = at + 1
      if self.dtype == "bool" then return numbers[at] ~= 0 end
      return numbers[at]
    end
    local out = {}
    for i = 1, self.shape[axis] do out[i] = build(axis + 1) end
    return out
  end
  return build(1)
end

--- "(2,3)" of {2, 3}.
function M.shape_text(shape) return "(" .. table.concat(shape, ",") .. ")" end

--- x:detach() -> the same values, cut off from the tape: no gradient goes through it.
---     local w = nn.tensor({3}, {grad = true})
---     (w * w:detach()):sum():backward()
---     w.grad  --> {3}
function Tensor:detach()
  local x = {ref = self.ref, shape = self.shape, dtype = self.dtype, order = self.order}
  return setmetatable(x, Tensor)
end

--- x:cuts(axis) -> where the engine cuts an axis into tiles: 0, ..., its size.
---     x:retile{2, 2}:cuts(2)  --> {0, 2, 3}
function Tensor:cuts(axis)
  local n, room = ffi.new "int32_t[1]", self:dim(axis) + 1
  local out = ffi.new("int64_t[?]", room)
  check(C.nn_cuts(self.ref, axis - 1, out, room, n))
  local list = {}
  for i = 0, n[0] - 1 do list[i + 1] = tonumber(out[i]) end
  return list
end

--- x:retile{rows, cols, ...} -> the same values cut into tiles of these sizes (0: whole). For tests
--- and tuning only: results never depend on it beyond rounding.
---     x:retile{1, 2}:sum()  --> 21
function Tensor:retile(sizes)
  local n = arguments.list("retile", "sizes", sizes)
  local out, list = ffi.new "nn_ref[1]", ffi.new("int64_t[?]", math.max(1, n), sizes)
  if layer.named then layer.tell() end
  lib.check_making(C.nn_retile, self.ref, list, n, out)
  return M.wrap(out[0].index, out[0].generation)
end

--- nn.scope(f, ...) -> f(...). Every tensor made inside is freed at the end, except those that f
--- returns.
---     nn.scope(function() return x:square():sum() end)  --> 91
function M.scope(f, ...)
  arguments.callable("scope", f)
  check(C.nn_scope_begin())
  local results = {lib.protected(f, ...)}
  local count, kept = table.maxn(results), {}
  for i = 2, count do
    if is_tensor(results[i]) then kept[#kept + 1] = results[i] end
  end
  local refs = ffi.new("nn_ref[?]", math.max(1, #kept))
  for i, t in ipairs(kept) do refs[i - 1] = t.ref end
  check(C.nn_scope_end(refs, #kept))
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, count)
end

-- What the tape keeps on a tensor.
local unset = {
  grad = true, grad_owned = true, requires_grad = true, node = true, output = true, name = true,
}

-- x[i] is a row; x.name a field or method. A missing name is an error that names the nearest.
Tensor.__index = function(self, key)
  local method = Tensor[key]
  if method ~= nil then return method end
  if type(key) == "number" then
    local row = self:slice(1, key, key)
    local rest = {}
    for i = 2, #self.shape do rest[i - 1] = self.shape[i] end
    return row:reshape(rest)
  end
  if unset[key] then return nil end
  if type(key) ~= "string" then
    lib.misuse("x[i] is row i, counted from 1; %s is given (by a mask, nn.where(m, x, 0) selects)",
               arguments.describe(key))
  end
  lib.misuse("a tensor has no method '%s'%s", key,
             hints.here("tensor", key) or suggest.suggestion(key, Tensor))
end

-- Only what the tape and scripts keep on a tensor can be set; x[1] = 5 would change no element.
Tensor.__newindex = function(self, key, value)
  if type(key) == "number" then
    lib.misuse("x[%g] = ... changes no tensor; use x:assign_(source, {first, ...})", key)
  elseif not unset[key] then
    lib.misuse("a tensor has no field '%s' to set%s", tostring(key),
               suggest.suggestion(key, unset))
  elseif key == "requires_grad" and value and not self.dtype:match "f" then
    lib.misuse("a gradient needs a float dtype (f32, f64, bf16), this tensor is %s", self.dtype)
  end
  rawset(self, key, value)
end

return M
