-- Checks values of JSON files from untrusted writers: types, bounds, required fields. A check is a
-- function(value, path) that returns nil, or the problem with the value, which it names by its
-- path, such as "random.seed".
local arguments = require "nn.base.arguments"
local cjson = require "cjson"
local json = require "nn.io.json"

local M = {}

local function problem(path, value, needed)
  local what = value == cjson.null and "null" or arguments.describe(value)
  if #what > 80 then what = what:sub(1, 77) .. "..." end
  return ("%s is %s; %s is needed"):format(path, what, needed)
end

--- whole(low, high) -> a check for whole numbers from `low` (default 0) to `high` (default 2^53).
function M.whole(low, high)
  low, high = low or 0, high or 2 ^ 53
  local needed = ("a whole number from %.0f to %.0f"):format(low, high)
  return function(value, path)
    local good = type(value) == "number" and value % 1 == 0 and value >= low and value <= high
    if not good then return problem(path, value, needed) end
  end
end

--- number: a check for finite numbers.
function M.number(value, path)
  local good = type(value) == "number" and math.abs(value) < math.huge
  if not good then return problem(path, value, "a finite number") end
end

--- text: a check for strings.
function M.text(value, path)
  if type(value) ~= "string" then return problem(path, value, "a text") end
end

--- boolean: a check for true and false.
function M.boolean(value, path)
  if type(value) ~= "boolean" then return problem(path, value, "true or false") end
end

--- list(check) -> a check for lists, whose elements pass `check`, if given.
function M.list(check)
  return function(value, path)
    if not json.is_list(value) then return problem(path, value, "a list") end
    for i = 1, check and #value or 0 do
      local found = check(value[i], ("%s[%d]"):format(path, i - 1))
      if found then return found end
    end
  end
end

--- optional(check) -> a check that also accepts a missing value and null.
function M.optional(check)
  return function(value, path)
    if value ~= nil and value ~= cjson.null then return check(value, path) end
  end
end

local function inside(path, name) return path and path .. "." .. name or name end

--- fields{name = check, ...} -> a check for objects; fields without a check may have any value.
function M.fields(checks)
  return function(value, path)
    if type(value) ~= "table" then return problem(path or "it", value, "an object") end
    for name, check in pairs(checks) do
      local found = check(value[name], inside(path, name))
      if found then return found end
    end
  end
end

--- map(names, check) -> a check for objects whose names are among the keys of `names`, and whose
--- values pass `check`.
function M.map(names, check)
  return function(value, path)
    if type(value) ~= "table" then return problem(path, value, "an object") end
    for name, one in pairs(value) do
      if not names[name] then return ("%s has the unknown name '%s'"):format(path, name) end
      local found = check(one, inside(path, name))
      if found then return found end
    end
  end
end

--- without_null(value) -> value, an object or list, without null in it or within its elements.
function M.without_null(value)
  for name, inner in pairs(value) do
    if inner == cjson.null then
      value[name] = nil
    elseif type(inner) == "table" then
      M.without_null(inner)
    end
  end
  return value
end

return M
