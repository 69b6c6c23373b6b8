-- The values of Jinja templates. Texts, whole numbers, fractions and booleans are Lua's; lists,
-- dicts and numbers that Lua cannot tell from others are tables (nn.io.ordered). A dict has the
-- order of its names; of other tables, the names are sorted.
local ordered = require "nn.io.ordered"
local lib = require "nn.base.capi"
local steps = require "nn.chat.steps"
local utf8 = require "nn.base.utf8"
local ffi = require "ffi"

ffi.cdef "int snprintf(char *text, size_t size, const char *format, ...);"

-- Bytes of a text; elements of a list; characters that are cut apart.
local M = {LONGEST = 1e8, MOST = 1e6}
local MOST_CHARACTERS = 1e7
M.NONE, M.UNDEFINED = setmetatable({}, {kind = "none"}), setmetatable({}, {kind = "undefined"})
local Tuple, Namespace = {kind = "list", is_tuple = true}, {kind = "namespace"}
local View, Lazy = {kind = "list", is_view = true}, {kind = "list", is_view = true, is_lazy = true}
local Markup = {kind = "markup"}

M.list, M.dict, M.put = ordered.list, ordered.object, ordered.put

--- keys(x) -> the names of a dict, in its order. Errors: too many steps.
function M.keys(x)
  local names = ordered.names(x)
  steps.look(#names)
  return names
end
function M.tuple(items) return setmetatable(items, Tuple) end
function M.is_tuple(value) return getmetatable(value) == Tuple end
function M.namespace(values) return setmetatable(values, Namespace) end

--- view(items) -> what can be iterated over, but not written or added: of range(), dict.keys().
function M.view(items) return setmetatable(items, View) end
--- lazy(items) -> a view that is empty after the first iteration: of filters such as map.
function M.lazy(items) return setmetatable(items, Lazy) end
function M.is_view(value) return (getmetatable(value) or {}).is_view == true end
function M.is_lazy(value) return getmetatable(value) == Lazy end

--- markup(text) -> a text of the filters `safe` and `escape`: what is added to it is escaped.
function M.markup(text) return setmetatable({text = text}, Markup) end

--- kind(value) -> "string", "markup", "number", "boolean", "none", "undefined", "list", "mapping",
--- "namespace" or "function"; "empty" for an empty Lua table, which is a list or a dict.
function M.kind(value)
  if value == nil then return "undefined" end
  local kind = type(value)
  if kind == "userdata" then return "none" end                -- null in JSON
  if kind ~= "table" then return kind end
  local made = getmetatable(value)
  if type(made) == "table" and made.kind then return made.kind end
  return next(value) ~= nil and #value == 0 and "mapping" or #value > 0 and "list" or "empty"
end

function M.is_list(value)
  local kind = M.kind(value)
  return kind == "list" or kind == "empty"
end

function M.is_mapping(value)
  local kind = M.kind(value)
  return kind == "mapping" or kind == "empty"
end

--- has_items(value) -> whether keys lead to values in it: a list, a dict or a namespace.
function M.has_items(value)
  return M.is_list(value) or M.is_mapping(value) or M.kind(value) == "namespace"
end

--- key(value) -> a value as a key of a dict; nil if it cannot be one: also NaN, and whole numbers
--- that no double has.
function M.key(value)
  local kind = M.kind(value)
  if kind == "none" then return M.NONE end
  if kind == "number" then
    local plain = M.plain(value)
    return plain == plain and not M.is_long(value) and plain or nil
  end
  if kind == "string" or kind == "boolean" then return value end
end

-- ### Numbers

--- plain(value) -> a number or a boolean as a Lua number; other values unchanged.
function M.plain(value)
  if type(value) == "boolean" then return value and 1 or 0 end
  return M.kind(value) == "number" and type(value) == "table" and value.value or value
end

--- is_numeric(value) -> whether Python calculates with it: a number or a boolean.
function M.is_numeric(value) return type(value) == "boolean" or M.kind(value) == "number" end

--- is_real(number) -> whether Python has it as a float: 2.5 and 2.0, but not 2.
function M.is_real(number)
  if type(number) == "table" then return not M.is_long(number) end
  return type(number) == "number" and number % 1 ~= 0
end

--- is_long(value) -> whether it is a whole number of so many digits that no double has its value.
function M.is_long(value)
  return type(value) == "table" and M.kind(value) == "number" and value.digits ~= nil
end

--- real(value) -> a Python float of a Lua number.
function M.real(value) return value % 1 == 0 and ordered.number(value) or value end

--- whole(digits) -> the whole number of a text of digits.
function M.whole(digits)
  local value = tonumber(digits)
  return math.abs(value) < 2 ^ 53 and value or ordered.number(value, digits)
end

local buffer = ffi.new "char[1024]"

--- printed(format, number) -> its text by a format of C for floats: unlike Lua's, ties are even.
function M.printed(format, number)
  return ffi.string(buffer, ffi.C.snprintf(buffer, 1024, format, number))
end

-- A float with the fewest digits that read back as it, as Python writes it.
local function real_text(value)
  local text
  for digits = math.abs(value) < 2 ^ -1022 and 0 or 14, 16 do
    text = M.printed("%." .. digits .. "e", value)
    if tonumber(text) == value then break end
  end
  local sign, lead, digits, exponent = text:match "^(-?)(%d)%.?(%d-)0*e([-+]%d+)$"
  exponent = tonumber(exponent)
  if exponent < -4 or exponent >= 16 then
    return ("%s%s%se%s%02d"):format(sign, lead, digits == "" and "" or "." .. digits,
                                   exponent < 0 and "-" or "+", math.abs(exponent))
  end
  digits = lead .. digits
  if exponent < 0 then return sign .. "0." .. ("0"):rep(-exponent - 1) .. digits end
  digits = digits .. ("0"):rep(exponent + 2 - #digits)
  return sign .. digits:sub(1, exponent + 1) .. "." .. digits:sub(exponent + 2)
end

--- number(value) -> a number as Python writes it; inf and nan of a float that is not finite.
function M.number(value)
  if M.is_long(value) then return value.digits end
  local plain = M.plain(value)
  if plain ~= plain then return "nan" end
  if math.abs(plain) == math.huge then return plain > 0 and "inf" or "-inf" end
  return M.is_real(value) and real_text(plain) or ("%.0f"):format(plain + 0)
end

--- characters(text) -> a list of the characters of a text. Errors: a text that is too long.
function M.characters(text)
  if #text > MOST_CHARACTERS then
    lib.deny("the chat template: a text of %d bytes is cut apart; %d are possible", #text,
             MOST_CHARACTERS)
  end
  local p, at, list = ffi.cast("const uint8_t *", text), 0, {}
  while at < #text do
    local _, length = utf8.decode(p, at, #text)
    list[#list + 1] = text:sub(at + 1, at + (length or 1))
    at = at + (length or 1)
  end
  return list
end

function M.is_true(value)
  local kind = M.kind(value)
  if kind == "boolean" then return value end
  if kind == "string" then return value ~= "" end
  if kind == "number" then return M.plain(value) ~= 0 end
  if kind == "list" then return #value > 0 or M.is_lazy(value) end
  if kind == "markup" then return value.text ~= "" end
  if kind == "mapping" then return #M.keys(value) > 0 end
  return kind == "function" or kind == "namespace"
end

--- equal(a, b) -> whether Python's == holds. Errors: too many steps.
local function same(a, b)
  steps.take()
  local kind, other = M.kind(a), M.kind(b)
  if kind == "markup" then return same(a.text, b) end
  if other == "markup" then return a == b.text end
  if kind == "none" or kind == "undefined" then return other == kind end
  if rawequal(a, b) then return a == a end                -- NaN is not equal to itself
  if M.is_numeric(a) and M.is_numeric(b) then
    if M.is_long(a) or M.is_long(b) then return M.number(a) == M.number(b) end
    return M.plain(a) == M.plain(b)
  end
  if M.is_list(a) and M.is_list(b) then
    if #a ~= #b or M.is_tuple(a) ~= M.is_tuple(b) or M.is_view(a) ~= M.is_view(b) then
      return false
    end
    for i = 1, #a do
      if not same(a[i], b[i]) then return false end
    end
    return true
  end
  if kind == "mapping" and other == "mapping" then
    local names = M.keys(a)
    if #names ~= #M.keys(b) then return false end
    for _, name in ipairs(names) do
      if b[name] == nil or not same(a[name], b[name]) then return false end
    end
    return true
  end
  return a == b
end

M.equal = same

-- ### Texts

-- Python's white space: the characters of str.isspace(), as patterns.
local spaces = {"[\9-\13\28-\32]", "\194[\133\160]", "\225\154\128",
                "\226\128[\128-\138\168\169\175]", "\226\129\159", "\227\128\128"}

local function space_length(text, at_end)
  for _, pattern in ipairs(spaces) do
    local first, last = text:find(at_end and pattern .. "$" or "^" .. pattern)
    if first then return last - first + 1 end
  end
end

--- is_space(c) -> whether a character is white space.
function M.is_space(c) return space_length(c, false) == #c end

--- strip(text, left, right, set) -> the text without white space, or the characters in `set`, on
--- its left and right.
function M.strip(text, left, right, set)
  if set then
    local known, list = {}, M.characters(text)
    for _, c in ipairs(M.characters(set)) do known[c] = true end
    local first, last = 1, #list
    while left and first <= last and known[list[first]] do first = first + 1 end
    while right and last >= first and known[list[last]] do last = last - 1 end
    return table.concat(list, "", first, last)
  end
  local first, last = 1, #text
  while left do                              -- no white space has more than 3 bytes
    local length = space_length(text:sub(first, first + 2), false)
    if not length then break end
    first = first + length
  end
  while right do
    local length = space_length(text:sub(math.max(first, last - 2), last), true)
    if not length then break end
    last = last - length
  end
  return text:sub(first, last)
end

return M
