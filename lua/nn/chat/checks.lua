-- What filters, tests and methods require of their arguments. need(good, text, ...) raises an error
-- of the template.
local values = require "nn.chat.values"

local M = {}
local kind = values.kind

function M.text(need, value, who)
  need(kind(value) == "string", "%s needs a text, not a value of kind %s", who, kind(value))
  return value
end

-- Letters beyond ASCII have no upper and lower case here, so they are refused, not left.
function M.ascii(need, value, who)
  need(not M.text(need, value, who):find "[\128-\255]", "%s is supported for ASCII only", who)
  return value
end

--- whole(need, value, who) -> a whole number as a Lua number.
function M.whole(need, value, who)
  local good = kind(value) == "number" and not values.is_real(value)
  need(good, "%s needs a whole number, not a value of kind %s", who, kind(value))
  return values.plain(value)
end

--- size(need, bytes): raises an error where a text would become too long.
function M.size(need, bytes)
  need(bytes < values.LONGEST, "a text of %.0f bytes; less than %d are possible", bytes,
       values.LONGEST)
end

--- items(need, value, who) -> what Python iterates over: a list, the names of a dict, characters.
function M.items(need, value, who)
  if values.is_lazy(value) then
    local items = values.list {}
    for i = 1, #value do items[i], value[i] = value[i], nil end
    return items
  end
  if kind(value) == "markup" then value = value.text end
  if kind(value) == "string" then return values.list(values.characters(value)) end
  if kind(value) == "mapping" then return values.list(values.keys(value)) end
  if kind(value) == "undefined" then return values.list {} end
  need(values.is_list(value), "%s needs a list, not a value of kind %s", who, kind(value))
  return value
end

function M.mapping(need, value, who)
  need(values.is_mapping(value), "%s needs a dict, not a value of kind %s", who, kind(value))
  return value
end

return M
