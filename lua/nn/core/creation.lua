-- Creates tensors: constants, random numbers, and copies of Lua values and host memory.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check

local M = {}

-- (3, 4, {dtype="i32"}) or ({3, 4}, {dtype="i32"}) -> a list of sizes, the options or nil.
local function split_shape(who, ...)
  local given, n, options = {...}, select("#", ...), nil
  local last = given[n]
  if type(last) == "table" and getmetatable(last) == nil and last[1] == nil then
    given[n], n, options = nil, n - 1, last
  end
  if n == 1 and type(given[1]) == "table" then
    arguments.list(who, "the shape", given[1])
    return given[1], options
  end
  for i = 1, n do arguments.whole(who, "size " .. i, given[i]) end
  return given, options
end

local function creator(name, op, value, known)
  known = arguments.names(known)
  return function(...)
    local shape, options = split_shape(name, ...)
    options = arguments.options(name, options, known)
    local all = {value = value}
    for key, v in pairs(options) do if key ~= "grad" then all[key] = v end end
    local y = ops.call(op, shape, all)
    y.requires_grad = options.grad or nil
    return y
  end
end

--- nn.zeros(3, 4, {dtype="f32", axes, grad=false}) or nn.zeros({3, 4}, {...}) -> a tensor of zeros.
--- dtype: f32, f64, bf16, i32, i64, u8 or bool; axes: axis names for nn.tiles; grad: whether
--- backward() computes its gradient. Errors: sizes that are not whole numbers of at least 1.
---     nn.zeros(2, 3, {dtype = "i32"})  --> {{0, 0, 0}, {0, 0, 0}}
M.zeros = creator("zeros", "full", 0, "dtype axes grad")
--- nn.ones(3, 4, {dtype="f32", axes, grad=false}) -> a tensor of ones; see nn.zeros.
---     nn.ones(2, 3):sum()  --> 6
M.ones = creator("ones", "full", 1, "dtype axes grad")
--- nn.rand(3, 4, {low=0, high=1, dtype="f32", axes, grad=false}) -> independent values, uniform in
--- [low, high); see nn.zeros and nn.seed.
---     nn.rand(2, 3):lt(1):sum()  --> 6
M.rand = creator("rand", "uniform", nil, "dtype axes grad low high")
--- nn.randn(3, 4, {mean=0, std=1, dtype="f32", axes, grad=false}) -> independent normal values; see
--- nn.zeros and nn.seed.
---     nn.randn(100, 100, {std = 0.02}):square():mean():sqrt()  --> 0.02
M.randn = creator("randn", "normal", nil, "dtype axes grad mean std")
-- The op takes a count; numbers as in PyTorch's arange(first, last) are an error.
function M.arange(count, options, ...)
  if type(options) == "number" or select("#", ...) > 0 then
    lib.misuse("arange: takes a count, not first and last: nn.arange(count, {start = %s, "
               .. "step = ...})", tostring(count))
  end
  return ops.call("arange", arguments.whole("arange", "the count", count), options or {})
end
-- The dtype of a tensor like x, with these options.
local function dtype_like(who, x, options)
  tensor.need(who, "x", x)
  return {dtype = arguments.options(who, options, {dtype = true}).dtype or x.dtype}
end
--- nn.zeros_like(x, {dtype}) -> zeros of x's shape and tiling, and by default its dtype.
---     nn.zeros_like(x):dims()  --> 2, 3
function M.zeros_like(x, options)
  return ops.call("full_like", x, 0, dtype_like("zeros_like", x, options))
end
--- nn.ones_like(x, {dtype}) -> ones; see nn.zeros_like.
---     nn.ones_like(x, {dtype = "i64"}):sum()  --> 6
function M.ones_like(x, options)
  return ops.call("full_like", x, 1, dtype_like("ones_like", x, options))
end

--- nn.rand_like(x, {dtype}) -> independent values, uniform in [0, 1), of x's shape, and by default
--- its dtype.
---     nn.rand_like(x):lt(1):sum()  --> 6
function M.rand_like(x, options)
  options = dtype_like("rand_like", x, options)
  return ops.call("uniform", x.shape, options)
end
--- nn.randn_like(x, {dtype}) -> independent normal values; see nn.rand_like.
---     nn.randn_like(x):dims()  --> 2, 3
function M.randn_like(x, options)
  options = dtype_like("randn_like", x, options)
  return ops.call("normal", x.shape, options)
end
--- wide_uniform(shape) -> independent f64 values, uniform in [0, 1), of 48 random bits.
function M.wide_uniform(shape)
  local u = ops.call("uniform", shape, {dtype = "f64"})
  return u + ops.call("uniform", shape, {dtype = "f64"}) * 2 ^ -24
end
--- nn.randint(low, high, shape, {dtype="i64"}) -> independent whole numbers from low to high - 1;
--- nn.randint(high, shape) begins with 0. See nn.seed.
---     nn.randint(5, {2, 3}):lt(5):sum()  --> 6
function M.randint(low, high, shape, options)
  if type(high) == "table" then low, high, shape, options = 0, low, high, shape end
  options = arguments.options("randint", options, {dtype = true})
  arguments.whole("randint", "low", low, -2 ^ 53)
  arguments.whole("randint", "high", high, low + 1)
  arguments.need(shape ~= nil, "randint", "the shape", shape, "a list of sizes is needed")
  return ((M.wide_uniform(shape) * (high - low)):floor() + low):to(options.dtype or "i64")
end
--- nn.randperm(n, {dtype="i64"}) -> the numbers 0 to n - 1 in random order; see nn.seed.
---     nn.randperm(5):sum()  --> 10
function M.randperm(n, options)
  options = arguments.options("randperm", options, {dtype = true})
  arguments.whole("randperm", "n", n)
  return ops.call("argsort", M.wide_uniform {n}):to(options.dtype or "i64")
end
--- nn.bernoulli(p) -> 1 with probability p, else 0, for each element of p, in p's shape and dtype.
---     nn.bernoulli(nn.tensor{0, 1})  --> {0, 1}
function M.bernoulli(p)
  tensor.need("bernoulli", "p", p)
  return M.rand_like(p):lt(p):to(p.dtype)
end
--- nn.linspace(first, last, count, {dtype="f32"}) -> `count` values at equal distances; the last
--- one is `last`.
---     nn.linspace(0, 1, 5)  --> {0, 0.25, 0.5, 0.75, 1}
function M.linspace(first, last, count, options)
  options = arguments.options("linspace", options, {dtype = true})
  arguments.whole("linspace", "the count", count)
  local fraction = ops.call("arange", count, {dtype = "f64"}) / math.max(1, count - 1)
  return (fraction * (last - first) + first):to(options.dtype or "f32")
end
--- nn.one_hot(ids, classes, {dtype="i64"}) -> (..., classes): 1 at each 0-based id (i32 or i64),
--- else 0. Ids outside 0 to classes - 1 give a row of zeros.
---     nn.one_hot(nn.tensor({2, 0}, {dtype = "i64"}), 3)  --> {{0, 0, 1}, {1, 0, 0}}
function M.one_hot(ids, classes, options)
  options = arguments.options("one_hot", options, {dtype = true})
  tensor.need_ids("one_hot", "the ids", ids)
  arguments.whole("one_hot", "the number of classes", classes)
  local class = ops.call("arange", classes, {dtype = "i32"})
  return ids:unsqueeze(-1):eq(class):to(options.dtype or "i64")
end

--- nn.from_host(array, shape, dtype, {axes}) -> a tensor with the elements of a row-major C array
--- of dtype's host type (see x:host). Errors: as x:copy_from_host.
---     nn.from_host(require("ffi").new("int32_t[2]", 7, 8), {1, 2}, "i32")  --> {{7, 8}}
function M.from_host(array, shape, dtype, options)
  local y = ops.call("empty", shape, {dtype = dtype, axes = options and options.axes})
  return y:copy_from_host(array)
end

-- Shape of a nested table, and its numbers in row-major order.
local function flatten(value, depth, shape, out)
  if type(value) == "boolean" then value = value and 1 or 0 end
  if type(value) == "number" then
    if depth <= #shape then lib.misuse("tensor: rows of different depth") end
    out[#out + 1] = value
    return
  end
  if type(value) ~= "table" or getmetatable(value) then
    lib.misuse("tensor: element %d is %s; numbers, booleans and tables of them are needed",
               #out + 1, arguments.describe(value))
  end
  local count = arguments.list("tensor", "the table", value)
  if count == 0 then lib.misuse("tensor: an empty table") end
  if not shape[depth] then
    if #out > 0 then lib.misuse("tensor: rows of different depth") end
    shape[depth] = count
  end
  if count ~= shape[depth] then
    lib.misuse("tensor: rows of %d and of %d elements", shape[depth], count)
  end
  for i = 1, count do flatten(value[i], depth + 1, shape, out) end
end

local function first_element(value)
  while type(value) == "table" do value = value[1] end
  return value
end

local creation_options = arguments.names "dtype grad"

--- nn.tensor(values, {dtype="f32", grad=false}) -> a tensor from a number or from nested tables of
--- numbers or booleans (default dtype: bool). grad: whether backward() computes its gradient.
--- Errors: rows of different lengths, other elements.
---     nn.tensor{{1, 2}, {3, 4}}:dims()  --> 2, 2
---     nn.tensor{true, false}.dtype  --> "bool"
---     nn.tensor({1, 2.5}, {dtype = "i32"})  --> error: ...which dtype i32 cannot hold
function M.tensor(values, options)
  options = arguments.options("tensor", options, creation_options)
  local shape, list = {}, {}
  flatten(values, 1, shape, list)
  local is_bool = type(first_element(values)) == "boolean"
  local dtype = options.dtype or (is_bool and "bool" or "f32")
  if not lib.dtype_number[dtype] then
    lib.misuse("tensor: unknown dtype '%s'", tostring(dtype))
  end
  local numbers = ffi.new("double[?]", #list, list)
  local array = ffi.new(lib.host_type[dtype] .. "[?]", #list)
  check(C.nn_copy_from_f64(numbers, lib.dtype_number[dtype], #list, array))
  local y = M.from_host(array, shape, dtype)
  if options.grad then y.requires_grad = true end
  return y
end

return M
