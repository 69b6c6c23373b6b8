-- The values that guards compare: what they were when a program was recorded, and what they are
-- now. guards.lua finds them.

local ffi = require "ffi"

local M = {}
local Guarded = {}
Guarded.__index = Guarded
local MOST = 50000               -- values of a function
local MOST_ELEMENTS = 2 ^ 17     -- of lists that are compared as a whole, in all
local MOST_BYTES = 2 ^ 16        -- of a structure or an array of ffi
local MOST_BYTES_IN_ALL = 2 ^ 20

local function value_of_upvalue(f, i)
  local _, value = debug.getupvalue(f, i)
  return value
end

local function size_of(object)
  local n = 0
  for _ in pairs(object) do n = n + 1 end
  return n
end

-- The copy of a list, if the list still has its elements.
local function copy_if_equal(list, copy)
  for i = 1, #copy do
    local now, before = rawget(list, i), copy[i]
    if not rawequal(now, before) and (now == now or before == before) then return nil end
  end
  return copy
end

local function bytes_of(data) return ffi.string(data, ffi.sizeof(data)) end

-- The kinds of guards, and how each gets its value now: fields, upvalues; numbers of fields;
-- metatables; the environments of functions; the elements of long lists; the bytes of data of ffi.
local GETTERS = {fields = rawget, upvalues = value_of_upvalue, sizes = size_of,
                 metatables = getmetatable, environments = getfenv, lists = copy_if_equal,
                 contents = bytes_of}
-- The keys in `known` of guards that have no key.
local KEYS = {sizes = {}, metatables = {}, environments = {}, lists = {}, contents = {}}

-- What changes, for kinds whose values say nothing to a reader.
local SHOWN = {metatables = "its metatable", environments = "its environment",
               lists = "its elements", contents = "its bytes"}

--- new() -> an empty collection.
function M.new()
  local self = setmetatable({count = 0, elements = 0, bytes = 0, known = {}, left_out = {}},
                            Guarded)
  for kind in pairs(GETTERS) do
    self[kind] = {count = 0, containers = {}, keys = {}, values = {}, paths = {}}
  end
  return self
end

-- Adds what is not compared, for a warning: its path and why.
local function leave_out(self, path, why) self.left_out[#self.left_out + 1] = {path, why} end

--- guarded:add(container, key, value, path, kind): guards the field `key` of a table, or what
--- `kind` says. path: how errors call it.
function Guarded:add(container, key, value, path, kind)
  kind = kind or "fields"
  local known = self.known[container] or {}
  self.known[container] = known
  local number = KEYS[kind] or key
  if known[number] then return end
  if self.count >= MOST then
    if self.count == MOST then
      leave_out(self, path, ("and others exceed the %d values that are compared"):format(MOST))
    end
    self.count = MOST + 1
    return
  end
  known[number] = true
  self.count = self.count + 1
  local list = self[kind]
  local n = list.count + 1
  list.count = n
  list.containers[n], list.keys[n], list.values[n], list.paths[n] = container, key, value, path
end

--- guarded:add_size(object, path): guards the number of fields of a table.
function Guarded:add_size(object, path) self:add(object, nil, size_of(object), path, "sizes") end

--- guarded:add_list(list, path) -> whether the elements of a long list are guarded from now on.
--- compared: how many are guarded otherwise.
function Guarded:add_list(list, path, compared)
  local copy, length = {}, #list
  if self.known[list] and self.known[list][KEYS.lists] then return false end
  if self.elements + length > MOST_ELEMENTS then
    leave_out(self, path, ("has %d elements, of which the first %d are compared"):format(length,
                                                                                       compared))
    return false
  end
  self.elements = self.elements + length
  for i = 1, length do copy[i] = rawget(list, i) end
  self:add(list, copy, copy, path, "lists")
  return true
end

--- guarded:add_data(data, path): guards data of ffi: the bytes of a structure or an array.
function Guarded:add_data(data, path)
  local kind = tostring(ffi.typeof(data)):match "^ctype<(.*)>$"
  local size = not kind:find "%)$" and ffi.sizeof(data)           -- a function has none
  if kind:find "%(%*" or kind:find "%*[%s%a]*$" then
    leave_out(self, path, "is a pointer, and what it points to is not compared")
  elseif not size and kind:find "%[" then
    leave_out(self, path, "is an array of unknown size")
  elseif size and (kind:find "[%[{]" or kind:find "struct" or kind:find "union") then
    if size > MOST_BYTES or self.bytes + size > MOST_BYTES_IN_ALL then
      return leave_out(self, path, ("is data of %d bytes; %d are compared, and %d in all"):format(
        size, MOST_BYTES, MOST_BYTES_IN_ALL))
    end
    self.bytes = self.bytes + size
    self:add(data, nil, bytes_of(data), path, "contents")
  end
end

--- guarded:close(): no values follow.
function Guarded:close() self.known = nil end

local function is_nan(x) return type(x) == "number" and x ~= x end

-- The first value, from number `from` (1), that changed in a list of guards: its number, or nil.
local function first_change(guards, get, from)
  local containers, keys, values = guards.containers, guards.keys, guards.values
  for i = from or 1, guards.count do
    local now = get(containers[i], keys[i])
    if not rawequal(now, values[i]) and not (is_nan(now) and is_nan(values[i])) then return i end
  end
end

--- guarded:change() -> nil, or the first value that changed: {path=, before=, now=}, or for a kind
--- without a value to show, {path=, what=}: "its bytes" and the like.
function Guarded:change() return self:changes(1)[1] end

--- guarded:changes(most) -> a list of up to `most` values that changed, as of change().
function Guarded:changes(most)
  local out = {}
  for kind, get in pairs(GETTERS) do
    local guards = self[kind]
    local i = first_change(guards, get)
    while i and #out < most do
      out[#out + 1] = {path = guards.paths[i]}
      if SHOWN[kind] then
        out[#out].what = SHOWN[kind]
      else
        out[#out].before, out[#out].now = guards.values[i], get(guards.containers[i],
                                                                guards.keys[i])
      end
      i = first_change(guards, get, i + 1)
    end
  end
  return out
end

--- guarded:has(value, except) -> whether the function reads this value from a table, other than a
--- key of the set `except`, or an upvalue.
function Guarded:has(value, except)
  for _, kind in ipairs {"fields", "upvalues"} do
    local guards = self[kind]
    for i = 1, guards.count do
      if rawequal(guards.values[i], value) and not except[guards.containers[i]] then return true end
    end
  end
  return false
end

--- guarded:hold() -> whether no value changed.
function Guarded:hold()
  for kind, get in pairs(GETTERS) do
    if first_change(self[kind], get) then return false end
  end
  return true
end

return M
