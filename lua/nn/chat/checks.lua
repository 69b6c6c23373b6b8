-- What filters, tests and methods require of their arguments. need(good, text, ...) raises an error
-- of the template.
local steps = require "nn.chat.steps"
local values = require "nn.chat.values"

local M = {}
local MOST_MADE = 1e9                        -- bytes that a template may make in all
local made = 0
local kind = values.kind

function M.text(need, value, who)
  need(kind(value) == "string", "%s needs a text, not a value of kind %s", who, kind(value))
  return value
end

-- Case mapping covers ASCII only; other letters are an error.
function M.ascii(need, value, who)
  need(not M.text(need, value, who):find "[\128-\255]", "%s is supported for ASCII only", who)
  return value
end

--- whole(need, value, who) -> a whole number as a Lua number.
function M.whole(need, value, who)
  local good = kind(value) == "number" and not values.is_real(value)
  need(good, "%s needs a whole number, not a value of kind %s", who, kind(value))
  need(not values.is_long(value), "%s needs a whole number up to 2^53", who)
  return values.plain(value)
end

--- size(need, bytes): raises an error where a text would become too long.
function M.size(need, bytes)
  need(bytes < values.LONGEST, "a text of %.0f bytes; less than %d are possible", bytes,
       values.LONGEST)
end

--- start(): a template begins, which has made nothing.
function M.start() made = 0 end

--- count(need, bytes): counts bytes that the template makes. Errors: too many in all.
function M.count(need, bytes)
  made = made + bytes
  need(made <= MOST_MADE, "the template makes texts and lists of more than %d bytes", MOST_MADE)
end

--- made(need, value) -> the value, a new text or list, whose bytes are counted. Errors: the
--- template makes too many.
function M.made(need, value)
  local size = 0
  if type(value) == "string" then
    size = #value
  elseif kind(value) == "markup" then
    size = #value.text
  elseif kind(value) == "list" then
    for i = 1, #value do size = size + 8 + (type(value[i]) == "string" and #value[i] or 0) end
  end
  M.count(need, size)
  return value
end

--- call(need, who, f, value, list) -> f(need, value, ...) with the arguments in a list. Errors:
--- more arguments than `f` has.
function M.call(need, who, f, value, list)
  local about, count = debug.getinfo(f, "u"), table.maxn(list)
  local text = kind(value) == "markup" and value.text or value
  if type(text) == "string" then steps.read(text) end
  local most = about.nparams - 2
  need(about.isvararg or count <= most, "%s takes at most %d arguments, not %d", who, most, count)
  return f(need, value, unpack(list, 1, count))
end

--- items(need, value, who) -> what Python iterates over: a list, the names of a dict, characters.
function M.items(need, value, who)
  if type(value) == "table" then steps.look(#value) end
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

-- As in transformers, namespaces have no names that begin with an underscore.
function M.field(need, name)
  need(kind(name) == "string" and name:sub(1, 1) ~= "_", "the name '%s' in a namespace",
       tostring(name))
end

function M.mapping(need, value, who)
  need(values.is_mapping(value), "%s needs a dict, not a value of kind %s", who, kind(value))
  return value
end

return M
