-- Tensors in Lua: small tables that wrap handles of the engine. op.lua adds a method for every op
-- of the registry, methods.lua operators and more, tape.lua backward(), show.lua the printed form.

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

--- nn.is_tensor(value) -> whether the value is a tensor.
---     nn.is_tensor(x), nn.is_tensor(1)  --> true, false
function M.is_tensor(x) return getmetatable(x) == Tensor end
local is_tensor = M.is_tensor

local info = ffi.new "nn_tensor_info"
local created = 0

--- next_order() -> a number for the order of creation, of tensors and modules.
function M.next_order()
  created = created + 1
  return created
end

--- Wraps a handle of the engine; the collector releases it.
function M.wrap(index, generation)
  local ref = ffi.gc(ffi.new("nn_ref", index, generation), C.nn_release)
  check(C.nn_tensor_info_get(ref, info))
  local shape = {}
  for i = 1, info.rank do shape[i] = tonumber(info.shape[i - 1]) end
  -- Temporaries of a recording use no memory.
  if info.temporary == 0 then lib.count_bytes(tonumber(info.bytes)) end
  local x = {ref = ref, shape = shape, dtype = lib.dtypes[info.dtype], order = M.next_order()}
  return setmetatable(x, Tensor)
end

--- versions(list) -> a list of a number for each tensor, which grows when it is changed in place.
function M.versions(list)
  local n = #list
  local refs, numbers, out = ffi.new("nn_ref[?]", n), ffi.new("int64_t[?]", n), {}
  for i = 1, n do refs[i - 1] = list[i].ref end
  check(C.nn_versions(refs, n, numbers))
  for i = 1, n do out[i] = tonumber(numbers[i - 1]) end
  return out
end

--- x:dims() -> the sizes of all axes, as several results.
---     x:dims()  --> 2, 3
function Tensor:dims() return unpack(self.shape) end

--- x:dim(axis) -> the size of an axis; axes count from 1, negative ones from the end. Errors: an
--- axis that x does not have.
---     x:dim(-1)  --> 3
function Tensor:dim(axis) return self.shape[arguments.axis("dim", axis, #self.shape)] end

--- x:count() -> the number of elements.
---     x:count()  --> 6
function Tensor:count()
  local n = 1
  for _, size in ipairs(self.shape) do n = n * size end
  return n
end

--- x:bytes() -> its size in bytes.
---     x:bytes()  --> 24
function Tensor:bytes() return self:count() * lib.dtype_size[self.dtype] end

--- x:memory_nodes() -> {{name = "RAM", bytes = 4096}, {name = "GPU 0", bytes = 0}}: the number of
--- bytes of x in each memory node now. Several nodes may hold copies of x; all are 0 before x is
--- computed.
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

--- x:release() frees the tensor's memory now instead of at the next garbage collection. Using x
--- afterwards is an error.
---     local y = nn.zeros(1000, 1000)
---     y:release()
---     y:sum()  --> error: ...
function Tensor:release()
  check(C.nn_release(self.ref))
end

--- x:host() -> array, count. Waits for the value and copies it to host memory, row-major: float*
--- for f32, double* (f64), uint16_t* (bf16), int32_t*, int64_t*, uint8_t* (u8, bool). The array is
--- 0-based and garbage-collected.
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

-- Describes host memory that does not fit a tensor; nil if it fits. Memory behind a pointer has an
-- unknown size and cannot be checked.
local function mismatch(x, array)
  local needed = x:bytes()
  if type(array) == "string" then
    return #array ~= needed and ("a text of %d bytes"):format(#array)
  elseif type(array) ~= "cdata" then
    return arguments.describe(array)
  end
  local element = element_type(array)
  if not element then return not tostring(ffi.typeof(array)):find "%*" and "not an array" end
  local own = element_type(ffi.typeof(lib.host_type[x.dtype] .. "[1]"))
  if element ~= own and not element:find "char$" then return "an array of " .. element end
  local bytes = ffi.sizeof(array)
  return bytes < needed and ("an array of %d bytes"):format(bytes)
end

--- x:copy_from_host(array) waits for all earlier uses of x, then fills it from a row-major array of
--- its host type (see x:host). A string or a char array is copied as raw bytes.
--- Errors: too few bytes, or elements of another type. The size behind a pointer is not checked.
---     nn.empty(2):copy_from_host(require("ffi").new("float[2]", 7, 8))  --> {7, 8}
function Tensor:copy_from_host(array)
  local wrong = mismatch(self, array)
  if wrong then
    lib.misuse("copy_from_host: the source is %s; %s %s needs %d bytes, as %s or a string", wrong,
               self.dtype, M.shape_text(self.shape), self:bytes(),
               lib.host_type[self.dtype] .. "[?]")
  end
  check(C.nn_write(self.ref, array, self:bytes()))
  return self
end

--- x:numbers() -> all elements as an array of double, for any dtype, and their count.
---     local array, count = x:to("bf16"):numbers()
---     array[0], count  --> 1, 6
function Tensor:numbers()
  local array, n = self:host()
  local out = ffi.new("double[?]", n)
  check(C.nn_copy_f64(array, lib.dtype_number[self.dtype], n, out))
  return out, n
end

--- x:item() -> the value of a tensor of one element, as a number (bool: true or false). Waits for
--- it. Errors: more than one element.
---     x:mean():item()  --> 3.5
function Tensor:item()
  if self:count() ~= 1 then
    lib.misuse("item: the tensor is %s; item() needs a single element", M.shape_text(self.shape))
  end
  local value = self:numbers()[0]
  if self.dtype == "bool" then return value ~= 0 end
  return value
end

--- x:at(i, j, ...) -> one element, like item(); indices count from 1, negative ones from the end.
--- Errors: a wrong number of indices; an index outside its axis.
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

--- x:table() -> nested Lua tables of numbers or booleans; for a tensor without axes its value.
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

--- x:detach() -> a tensor with the same values that is not on the tape: no gradient flows through.
---     local w = nn.tensor({3}, {grad = true})
---     (w * w:detach()):sum():backward()
---     w.grad  --> {3}
function Tensor:detach()
  local x = {ref = self.ref, shape = self.shape, dtype = self.dtype, order = self.order}
  return setmetatable(x, Tensor)
end

--- x:cuts(axis) -> the positions at which the axis is cut into tiles: 0, ..., its size.
---     x:retile{2, 2}:cuts(2)  --> {0, 2, 3}
function Tensor:cuts(axis)
  local n, room = ffi.new "int32_t[1]", self:dim(axis) + 1
  local out = ffi.new("int64_t[?]", room)
  check(C.nn_cuts(self.ref, axis - 1, out, room, n))
  local list = {}
  for i = 0, n[0] - 1 do list[i + 1] = tonumber(out[i]) end
  return list
end

--- x:retile{rows, cols, ...} -> the same values in tiles of these sizes (0: the whole axis). For
--- tests and tuning only: tile sizes affect results only by rounding.
---     x:retile{1, 2}:sum()  --> 21
function Tensor:retile(sizes)
  local n = arguments.list("retile", "sizes", sizes)
  for i = 1, n do arguments.whole("retile", ("sizes[%d]"):format(i), sizes[i], 0) end
  local out, list = ffi.new "nn_ref[1]", ffi.new("int64_t[?]", math.max(1, n), sizes)
  if layer.named then layer.send() end
  lib.check_creating(C.nn_retile, self.ref, list, n, out)
  return M.wrap(out[0].index, out[0].generation)
end

--- nn.scope(f, ...) -> f(...). At the end, frees every tensor created inside, except those that f
--- returns.
---     nn.scope(function() return x:square():sum() end)  --> 91
function M.scope(f, ...)
  arguments.callable("scope", f)
  check(C.nn_scope_begin())
  local results = {xpcall(f, lib.traced, ...)}
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

--- Raises an error unless all arguments are tensors; their names are in the text `names`.
function M.need(who, names, ...)
  local i = 0
  for name in names:gmatch "%S+" do
    i = i + 1
    arguments.need(is_tensor((select(i, ...))), who, name, (select(i, ...)), "a tensor is needed")
  end
end

--- need_ids(who, what, x): raises an error unless x is an i32 or i64 tensor.
function M.need_ids(who, what, x)
  arguments.need(is_tensor(x), who, what, x, "a tensor is needed")
  if x.dtype ~= "i32" and x.dtype ~= "i64" then
    lib.misuse("%s: the dtype of %s is %s; i32 or i64 is needed: x:to \"i64\"", who, what, x.dtype)
  end
end

--- functions: every method x:NAME(...) as a function of x.
M.functions = setmetatable({}, {__index = function(_, name)
  local method = Tensor[name]
  return function(x, ...)
    M.need(name, "x", x)
    return method(x, ...)
  end
end})

-- Fields of a tensor that may be unset; most belong to the tape. role: "parameter" or "buffer" of a
-- module.
local unset = {
  grad = true, grad_owned = true, grad_used = true, from_grad = true, requires_grad = true,
  node = true, output = true, name = true, role = true,
}

-- x[i] is a row, x[mask] and x[list] are x:index(...), x.name is a field or method; an unknown name
-- is an error that suggests the nearest.
Tensor.__index = function(self, key)
  local method = Tensor[key]
  if method ~= nil then return method end
  if type(key) == "number" then
    if key == 0 then lib.misuse "x[0]: rows count from 1; x[1] is the first one" end
    local row = self:slice(1, key, key)
    local rest = {}
    for i = 2, #self.shape do rest[i - 1] = self.shape[i] end
    return row:reshape(rest)
  end
  if unset[key] then return nil end
  if type(key) == "table" then return Tensor.index(self, key) end
  if type(key) ~= "string" then
    lib.misuse("x[i] is row i, counted from 1; the index is %s", arguments.describe(key))
  end
  local changed = key:match "^(.*)_$"   -- x:mul_(y)
  lib.misuse("a tensor has no method '%s'%s", key, hints.equivalent("tensor", key)
             or Tensor[changed] and ("; use x = x:%s(...)"):format(changed)
             or suggest.suggestion(key, Tensor))
end

-- Only these fields can be set; x[1] = 5 would not change an element.
Tensor.__newindex = function(self, key, value)
  if type(key) == "number" then
    lib.misuse("x[%g] = ... cannot change a tensor; use x:assign_(source, {first, ...})", key)
  elseif type(key) == "table" then
    lib.misuse("x[...] = ... cannot change a tensor; x:masked_fill(mask, value), "
               .. "nn.where(mask, y, x) and x:index_copy(axis, list, source) give a new one")
  elseif not unset[key] then
    lib.misuse("a tensor has no field '%s' to set%s", tostring(key),
               suggest.suggestion(key, unset))
  elseif key == "requires_grad" and value and not self.dtype:match "f" then
    lib.misuse("a gradient needs a float dtype (f32, f64, bf16), this tensor is %s", self.dtype)
  end
  rawset(self, key, value)
end

return M
