-- The arguments of nn.plot and nn.histogram: numbers of tensors and lists, and options.
local arguments = require "nn.base.arguments"
local ffi = require "ffi"
local lib = require "nn.base.capi"
local sorted_keys = require("nn.base.tables").sorted_keys
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor

local M = {}

-- Whether a value is a tensor or a list, which may be empty.
local function is_data(value)
  if is_tensor(value) then return true end
  return type(value) == "table" and not getmetatable(value)
    and (value[1] ~= nil or next(value) == nil)
end

-- Whether a value is a pair of x and y, and not a list of two values.
local function is_pair(value)
  if not is_data(value) or is_tensor(value) or value[3] ~= nil then return false end
  local x, y = value[1], value[2]
  return is_data(x) and is_data(y) and not (is_tensor(x) and x:count() == 1)
end

local function is_named(value)
  return type(value) == "table" and not getmetatable(value) and not is_data(value)
end

local function element(who, what, value, i)
  if is_tensor(value) and value:count() == 1 then value = value:numbers()[0] end
  arguments.need(type(value) == "number", who, ("element %d of %s"):format(i, what), value,
                 "a number is needed")
  return value
end

--- numbers(who, what, value, any_shape) -> array of double, count: the elements of a tensor (of one
--- axis unless any_shape) or of a list of numbers and tensors of one element. Errors: others; none.
function M.numbers(who, what, value, any_shape)
  arguments.need(is_data(value), who, what, value, "a tensor or a list of numbers is needed")
  local array, count
  if is_tensor(value) then
    if not any_shape and #value.shape > 1 then
      lib.misuse("%s: %s is %s; a tensor of one axis is needed, such as a row x[1] or "
                 .. "x:reshape(-1)", who, what, tensor.shape_text(value.shape))
    end
    array, count = value:numbers()
  else
    count = arguments.list(who, what, value)
    array = ffi.new("double[?]", count)
    for i = 1, count do array[i - 1] = element(who, what, value[i], i) end
  end
  if count == 0 then lib.misuse("%s: %s has no values; one at least is needed", who, what) end
  return array, count
end

-- {name=, x=, y=, count=}; x: nil for 1, 2, ...
local function series(name, x, y)
  local what = name and "'" .. name .. "'" or "y"
  if is_pair(y) then x, y = y[1], y[2] end
  local array, count = M.numbers("plot", what, y)
  local places, size
  if x then
    places, size = M.numbers("plot", "x", x)
    if size ~= count then
      lib.misuse("plot: x has %d values, %s has %d; as many are needed", size, what, count)
    end
  end
  return {name = name, x = places, y = array, count = count}
end

--- read(known, ...) -> list of series {name=, x=, y=, count=}, options: the arguments of nn.plot.
function M.read(known, ...)
  local given, at, x, y = {...}, 2, nil, (...)
  local list, options = {}, {}
  local second = given[2]
  local has_data = false
  for _, value in pairs(is_named(second) and second or {}) do
    has_data = has_data or is_data(value)
  end
  if is_data(y) and (is_data(second) or has_data) then x, y, at = y, second, 3 end
  for name, value in pairs(arguments.options("plot", given[at], known)) do
    options[name] = value
  end
  if is_data(y) then return {series(nil, x, y)}, options end
  arguments.need(is_named(y), "plot", "the argument", y,
                 "values are needed: plot(y), plot(x, y) or plot{name = y, ...}")
  for _, name in ipairs(sorted_keys(y)) do
    local value = y[name]
    if is_data(value) then
      list[#list + 1] = series(name, x, value)
    else
      options[name] = value
    end
  end
  if #list == 0 then lib.misuse "plot: no values are given; plot{name = y, ...} needs some" end
  return list, arguments.options("plot", options, known)
end

return M
