-- Checks of the arguments that scripts pass to the library. An error is one line that states the
-- given value and the expected one; `who` is the name of the function in that line.

local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"

local M = {}

--- describe(value) -> the value in a few words, for errors: "nil", "2.5", "'abc'", "a Linear".
function M.describe(value)
  local kind = type(value)
  if kind == "nil" or kind == "number" or kind == "boolean" then return tostring(value) end
  if kind == "string" then return "'" .. value .. "'" end
  local class = kind == "table" and debug.getmetatable(value)
  local name = type(class) == "table" and (class.class_name or class.type_name)
  return "a " .. (name or kind)
end

--- need(good, who, what, value, needed): raises "who: what is VALUE; NEEDED" unless `good`.
function M.need(good, who, what, value, needed)
  if not good then lib.misuse("%s: %s is %s; %s", who, what, M.describe(value), needed) end
end

--- whole(who, what, value, low, high) -> value, a whole number from `low` (default 1) to `high`.
function M.whole(who, what, value, low, high)
  low = low or 1
  if type(value) == "number" and value % 1 == 0 and value >= low and value <= (high or 2 ^ 53) then
    return value
  end
  lib.misuse("%s: %s is %s; a whole number %s is needed", who, what, M.describe(value),
             high and ("from %g to %g"):format(low, high) or ("of at least %g"):format(low))
end

--- number(who, options, key, default, low, high) -> options[key], a number from `low` to `high`.
function M.number(who, options, key, default, low, high)
  local value = options[key]
  if value == nil then value = default end
  if type(value) ~= "number" or not (value >= low and value <= (high or math.huge)) then
    lib.misuse("%s: %s is %s; a number %s is needed", who, key, M.describe(value),
               high and ("from %g to %g"):format(low, high) or ("of at least %g"):format(low))
  end
  return value
end

--- flag(who, options, key, default) -> options[key], true or false.
function M.flag(who, options, key, default)
  local value = options[key]
  if value == nil then return default end
  M.need(type(value) == "boolean", who, key, value, "true or false is needed")
  return value
end

--- callable(who, f) -> f, a function or a callable table.
function M.callable(who, f)
  local class = type(f) == "table" and debug.getmetatable(f)
  M.need(type(f) == "function" or class and class.__call, who, "the argument", f,
         "a function is needed")
  return f
end

--- nn.options(who, given, known) -> given (a table of options), or {} for nil. Errors: a name that
--- is not a key of `known`; the error names the function `who` and suggests the nearest name.
---     nn.options("rotate", {angel = 1}, {angle = true})  --> error: ...did you mean 'angle'?
function M.options(who, given, known, raise)     -- raise: lib.misuse or lib.deny
  raise = raise or lib.misuse
  if given == nil then return {} end
  M.need(type(known) == "table", "options", "the set of names", known, "{name = true} is needed")
  local class = type(given) == "table" and debug.getmetatable(given) or {}
  if type(given) ~= "table" or class.class_name or class.type_name or rawget(given, 1) ~= nil then
    raise("%s: options are a table {name = value, ...}, not %s%s", who, M.describe(given),
          suggest.choices("", known))
  end
  for name in pairs(given) do
    if not known[name] then
      raise("%s: has no option '%s'%s", who, tostring(name), suggest.choices(name, known))
    end
  end
  return given
end

--- names "a b" -> {a = true, b = true}: a set for options().
function M.names(text)
  local set = {}
  for name in text:gmatch "%S+" do set[name] = true end
  return set
end

--- list_length(t) -> the number of elements of a list without holes; for any other table nil and an
--- invalid key (a name, 0, or a number after a hole). Allocates nothing.
function M.list_length(t)
  local n = #t
  if t[0] ~= nil then return nil, 0 end
  for i = 1, n do
    if t[i] == nil then return nil, i end
  end
  local key = next(t, n > 0 and n or nil)
  while key ~= nil do
    if type(key) ~= "number" or key < 1 or key > n or key % 1 ~= 0 then return nil, key end
    key = next(t, key)
  end
  return n
end

--- list(who, what, t) -> the number of elements of a list. Errors: t is not a table, or has holes,
--- an element 0, or names.
function M.list(who, what, t)
  M.need(type(t) == "table" and not getmetatable(t), who, what, t, "a list is needed")
  local n, key = M.list_length(t)
  if n then return n end
  if type(key) == "string" then
    lib.misuse("%s: %s has the name '%s' among its elements; options go into a table of their own",
               who, what, key)
  end
  if type(key) == "number" and key >= 1 and key % 1 == 0 then
    lib.misuse("%s: %s has a nil %s element %d", who, what, t[key] == nil and "as" or "before", key)
  end
  lib.misuse("%s: %s has an element [%s]; lists count from 1", who, what, tostring(key))
end

--- axis(who, axis, rank) -> the axis as a positive number. Negative axes count from the end.
function M.axis(who, axis, rank)
  if type(axis) == "number" and axis % 1 == 0 then
    local a = axis < 0 and rank + 1 + axis or axis
    if a >= 1 and a <= rank then return a end
  end
  if rank == 0 then lib.misuse("%s: the tensor has no axes", who) end
  lib.misuse("%s: there is no axis %s; axes are 1 to %d, or -1 to -%d from the end", who,
             M.describe(axis), rank, rank)
end

return M
