-- Guards of compiled functions: the Lua values that a recording depends on. A compiled function
-- records again when one of them changed. They are found by a walk: the upvalues and globals that
-- the code reads, the fields of the tables and modules among them, and the functions that it
-- reaches so. The library's own functions and tables are not guarded.

local host = require "nn.host"
local module = require "nn.core.module"
local reads = require "nn.core.reads"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}
local Guards = {}
Guards.__index = Guards
local LIST = 1024                -- elements of a list that are guarded
local MOST = 50000               -- guards of a function

local library = "@" .. host.root .. "/lua/"

local function source_of(f)
  local info = debug.getinfo(f, "S")
  return info.what ~= "C" and info.source or nil
end

local function is_users(f)
  local source = source_of(f)
  return source ~= nil and source:sub(1, #library) ~= library
end

local lua = {[_G] = true}        -- Lua's own tables
for name in ("string table math io os debug coroutine bit package ffi jit"):gmatch "%a+" do
  lua[package.loaded[name] or require(name)] = true
end

-- The tables of the library and of Lua, as the keys of a set.
local function own_tables()
  local set = setmetatable({}, {__index = lua})
  for name, value in pairs(package.loaded) do
    if type(value) == "table" and (name == "nn" or name:find "^nn%.") then set[value] = true end
  end
  return set
end

-- Guards the field `key` of a table, or upvalue number `key` of a function.
local function guard(self, container, key, value, path)
  if value ~= value or self.count >= MOST then return end      -- NaN equals nothing
  self.count = self.count + 1
  local list = type(container) == "function" and self.upvalues
    or value == nil and self.absent or self.present
  local n = #list.keys + 1
  list.containers[n], list.keys[n], list.values[n], list.paths[n] = container, key, value, path
end

-- The value of a name in the class of an object and its ancestors, and the one that has it; or nil.
local function in_class(object, name)
  local class = getmetatable(object)
  if type(class) ~= "table" then return nil end
  local index = module.is_module(object) and class or rawget(class, "__index")
  while type(index) == "table" do
    local value, above = rawget(index, name), getmetatable(index)
    if value ~= nil then return value, index end
    index = type(above) == "table" and rawget(above, "__index")
  end
end

-- How the methods of an object read it: adds their nodes to `node`, and the methods to `methods`.
-- They are the methods that are named in the node, and `first`, if any.
local function add_methods(object, node, methods, first)
  local names = node:names()
  if first then names[first] = true end
  local found = false
  for name in pairs(names) do
    local method = not methods[name] and in_class(object, name)
    if type(method) == "function" and source_of(method) then
      methods[name], found = method, true
      node:add(reads.of(method).object)
    end
  end
  if found then add_methods(object, node, methods) end
end

-- How an object is read by code that reads it as `node`: the node with what its methods read; the
-- methods; `own`, the names whose absence counts. Of a module only its own code tests for a field:
-- callers read fields of those names elsewhere.
local function reading(self, object, node)
  local class = getmetatable(object)
  if type(class) ~= "table" then return {node = node, own = node:names(), methods = {}} end
  self.of_class[class] = self.of_class[class] or {}
  local found = self.of_class[class][node]
  if found then return found end
  found = {node = reads.node(), methods = {}}
  found.node:add(node)
  add_methods(object, found.node, found.methods)
  if module.is_module(object) then
    local inner = reads.node()
    add_methods(object, inner, {}, "forward")
    found.own = inner:names()
    add_methods(object, found.node, found.methods, "forward")
  end
  found.own = found.own or found.node:names()
  for name, method in pairs(found.methods) do
    local _, owner = in_class(object, name)
    guard(self, owner, name, method, (class.class_name or "class") .. "." .. name)
  end
  self.of_class[class][node] = found
  return found
end

local visit

local function visit_field(self, object, key, path, node, inside)
  local value = rawget(object, key)
  path = (path == "" and "" or path .. ".") .. tostring(key)
  guard(self, object, key, value, path)
  visit(self, value, path, node:below(key), inside)
end

-- inside: whether the table belongs to a module, so that its code may find tensors and modules in
-- it by any name.
local function visit_table(self, object, path, given, inside)
  local seen = self.seen[given] or {}
  self.seen[given] = seen
  if seen[object] then return end
  seen[object] = true
  local found = reading(self, object, given)
  local node = found.node
  for name, method in pairs(found.methods) do
    if is_users(method) then visit(self, method, path .. "." .. name) end
  end
  local names = node:names()
  for key in pairs(names) do
    if rawget(object, key) ~= nil or found.own[key] and in_class(object, key) == nil then
      visit_field(self, object, key, path, node, inside)
    end
  end
  for i = 1, math.min(#object, LIST) do visit_field(self, object, i, path, node, inside) end
  if not inside then return end
  for key, value in pairs(object) do
    if type(key) == "string" and not names[key] and type(value) == "table" then
      local here = path .. "." .. key
      if getmetatable(value) then guard(self, object, key, value, here) end
      visit(self, value, here, node:below(key), true)
    end
  end
end

-- Of the library's functions only what a user gave them, as in nn.grad(f).
local function visit_given(self, f, path)
  for i = 1, debug.getinfo(f, "u").nups do
    local _, value = debug.getupvalue(f, i)
    if module.is_module(value) or type(value) == "function" and is_users(value) then
      visit(self, value, path, reads.node())
    end
  end
end

local function visit_function(self, f, path)
  if self.seen[f] or not source_of(f) then return end
  self.seen[f] = true
  if not (is_users(f) or f == self.f) then return visit_given(self, f, path) end
  local read = reads.of(f)
  for i = 1, debug.getinfo(f, "u").nups do
    local name, value = debug.getupvalue(f, i)
    local node = read.upvalues[name]
    if node then
      guard(self, f, i, value, name)
      visit(self, value, name, node)
    end
  end
  local globals = getfenv(f)
  for name, node in pairs(read.globals) do
    local value = rawget(globals, name)
    guard(self, globals, name, value, name)
    visit(self, value, name, node)
  end
end

-- node: how code reads the value; nil for a function.
function visit(self, value, path, node, inside)
  if type(value) == "function" then return visit_function(self, value, path) end
  if type(value) ~= "table" or self.own[value] then return end
  if is_tensor(value) then
    if self.seen[value] then return end
    self.seen[value] = true
    return guard(self, value, "requires_grad", rawget(value, "requires_grad"),
                 path .. ".requires_grad")
  end
  local class = getmetatable(value)
  local of_library = type(class) == "table" and rawget(class, "type_name")
  if of_library == "compiled function" then return visit(self, value.f, path, node) end
  if not of_library then
    visit_table(self, value, path, node, inside or module.is_module(value))
  end
end

local function list() return {containers = {}, keys = {}, values = {}, paths = {}} end

--- of(f) -> the guards of a function, or of a callable table: what it would read now.
function M.of(f)
  local self = setmetatable({f = f, present = list(), absent = list(), upvalues = list(), count = 0,
                             seen = {}, of_class = {}, own = own_tables()}, Guards)
  visit(self, f, module.is_module(f) and f.class_name or "", reads.node())
  self.seen, self.of_class, self.own = nil, nil, nil
  return self
end

local function value_of_upvalue(f, i)
  local _, value = debug.getupvalue(f, i)
  return value
end

-- The first value from number `from` that changed in a list of guards: its number, or nil.
local function first_change(guards, get, from)
  local containers, keys, values = guards.containers, guards.keys, guards.values
  for i = from, #keys do
    if not rawequal(get(containers[i], keys[i]), values[i]) then return i end
  end
end

--- guards:change() -> nil, or the first value that changed: {path=, before=, now=}.
function Guards:change() return self:changes(1)[1] end

--- guards:changes(most) -> a list of up to `most` values that changed, as of change().
function Guards:changes(most)
  local out = {}
  local function add(guards, get)
    local i = first_change(guards, get, 1)
    while i and #out < most do
      out[#out + 1] = {path = guards.paths[i], before = guards.values[i],
                       now = get(guards.containers[i], guards.keys[i])}
      i = first_change(guards, get, i + 1)
    end
  end
  add(self.present, rawget)
  if #out < most then add(self.absent, rawget) end
  if #out < most then add(self.upvalues, value_of_upvalue) end
  return out
end

--- guards:has(value) -> whether the function reads this value from a table or an upvalue.
function Guards:has(value)
  for _, guarded in ipairs {self.present, self.upvalues} do
    for i = 1, #guarded.keys do
      if rawequal(guarded.values[i], value) then return true end
    end
  end
  return false
end

--- guards:hold() -> whether no value changed.
function Guards:hold()
  return not first_change(self.present, rawget, 1) and not first_change(self.absent, rawget, 1)
         and not first_change(self.upvalues, value_of_upvalue, 1)
end

return M
