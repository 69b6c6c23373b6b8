-- Guards of compiled functions: the Lua values that a recording depends on. A compiled function
-- records again when one of them changed. They are found by a walk: the upvalues and globals that
-- the code reads, the fields of the tables and modules among them, and the functions that it
-- reaches so. The library's own functions and tables are not guarded.

local guarded = require "nn.core.guarded"
local host = require "nn.host"
local hooks = require "nn.core.hooks"
local module = require "nn.core.module"
local reads = require "nn.core.reads"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}
local LIST = 1024                -- elements of a list that are guarded one by one
local DEEPEST = 100              -- ancestors of a class

local library = "@" .. host.root .. "/lua/"
local layers = library .. "nn/core/"

local sources = setmetatable({}, {__mode = "k"})

-- The name of the file of a Lua function, or false.
local function source_of(f)
  if sources[f] == nil then
    local info = debug.getinfo(f, "S")
    sources[f] = info.what ~= "C" and info.source
  end
  return sources[f]
end

local function is_users(f)
  local source = source_of(f)
  return source and source:sub(1, #library) ~= library
end

local lua = {}                   -- Lua's own tables
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

-- Guards the field `key` of a table, or what `kind` says.
local function guard(self, container, key, value, path, kind)
  self.guarded:add(container, key, value, path, kind)
end

-- The table in which an object finds the names that it lacks, or nil.
local function class_of(object)
  local class = debug.getmetatable(object)
  if not class then return nil end
  local index = module.is_module(object) and class or rawget(class, "__index")
  return type(index) == "table" and index or nil
end

-- The value of a name in the class of an object and its ancestors, and the one that has it; or nil.
-- lacks(class): called for those that lack it.
local function in_class(object, name, lacks)
  local class = class_of(object)
  for _ = 1, class and DEEPEST or 0 do
    local value = rawget(class, name)
    if value ~= nil then return value, class end
    if lacks then lacks(class) end
    class = class_of(class)
    if not class then return nil end
  end
end

local visit

-- Guards the method that a class finds under a name, also against an overriding one.
local function guard_method(self, object, name, method)
  local path = (rawget(debug.getmetatable(object), "class_name") or "class") .. "." .. name
  local _, owner = in_class(object, name, function(class) guard(self, class, name, nil, path) end)
  guard(self, owner, name, method, path)
  if is_users(method) then visit(self, method, path) end
end

-- Adds how a function reads an object as its first parameter. Returns whether that is new.
local function add_reads(known, f)
  local read = reads.of(f).object
  for name in pairs(read.fields) do known.own[name] = true end
  return known.node:add(read)
end

-- Adds how the methods of an object, and functions in its fields, read it. Returns the names that
-- code may read, with those of the methods: the ones that code names; of a module also `forward`.
local function add_functions(self, object, known)
  local names, changed = known.node:names(self.unknown), false
  if module.is_module(object) then names.forward = true end
  for name in pairs(names) do
    local own = rawget(object, name)
    local method = not known.methods[name] and in_class(object, name)
    if type(method) == "function" and source_of(method) then
      known.methods[name] = true
      changed = add_reads(known, method) or changed
      guard_method(self, object, name, method)
    end
    if type(own) == "function" and source_of(own) then
      changed = add_reads(known, own) or changed
    end
  end
  if changed then return add_functions(self, object, known) end
  for name in pairs(known.methods) do names[name] = true end
  return names
end

-- Guards what object[key] is: a value of the object, or of its class or an ancestor.
local function visit_field(self, object, key, path, node, inside)
  local value = rawget(object, key)
  path = (path == "" and "" or path .. ".") .. tostring(key)
  guard(self, object, key, value, path)
  if value == nil then
    local owner
    value, owner = in_class(object, key)
    if value == nil then return end
    in_class(object, key, function(class) guard(self, class, key, nil, path) end)
    guard(self, owner, key, value, path)
  end
  visit(self, value, path, node:below(key), inside)
end

-- Guards which class an object has, and each of its ancestors.
local function guard_classes(self, object, path)
  for _ = 1, DEEPEST do
    guard(self, object, nil, getmetatable(object), path, "metatables")
    object = class_of(object)
    if not object then return end
  end
end

-- The operators of an object, such as __call and __index, if they are a user's functions.
local function visit_operators(self, object, path)
  local class = debug.getmetatable(object)
  if not class or module.is_module(object) then return end
  for name, f in pairs(class) do
    if type(name) == "string" and name:find "^__" and type(f) == "function" and is_users(f) then
      guard(self, class, name, f, path .. "." .. name)
      visit(self, f, path .. "." .. name)
    end
  end
  for _, name in ipairs {"__index", "__call"} do
    guard(self, class, name, rawget(class, name), path .. "." .. name)
  end
end

-- Adds the names of the fields that code reads without naming them. Names that begin with "_" are
-- the library's.
local function add_computed(self, object, node, names)
  local forward = module.is_module(object) and in_class(object, "forward")
  local is_layer = forward and (source_of(forward) or ""):sub(1, #layers) == layers
  local is_read = node.computed or is_layer
    or not debug.getmetatable(object) and (node.given or self.iterates and node.escaped)
  local count = is_read and 0 or LIST
  for key in pairs(object) do
    if count == LIST then return end
    count = count + 1
    if type(key) ~= "string" or key:sub(1, 1) ~= "_" then names[key] = true end
  end
end

-- Visits the fields of these names. Of a module only its own code tests for a field: callers read
-- fields of those names elsewhere.
local function visit_names(self, object, names, path, known, inside)
  local is_module = module.is_module(object)
  for key, how in pairs(names) do
    local kind = type(rawget(object, key))
    local is_missing = kind == "nil" and (not is_module or known.own[key] or known.methods[key])
    if is_missing and (how == true or known.methods[key]) or kind == "function" or kind == "table"
       or kind == "cdata" or kind ~= "nil" and how == true then
      visit_field(self, object, key, path, known.node, inside)
    end
  end
end

-- Visits the elements of a list. Its length counts, unless code only appends to it and `lengths` is
-- not set.
local function visit_list(self, object, names, path, node, inside)
  local length = #object
  for i = 1, math.min(length, LIST) do
    if not names[i] then visit_field(self, object, i, path, node, inside) end
  end
  if length > LIST and (node.computed or node.listed or self.iterates and node.escaped)
     and self.guarded:add_list(object, path, LIST) then
    for i = LIST + 1, length do
      local kind = type(rawget(object, i))
      if kind == "table" or kind == "function" or kind == "cdata" then
        visit_field(self, object, i, path, node, inside)
      end
    end
  end
  if (self.lengths or not node.appended) and (length > 0 or not module.is_module(object)) then
    guard(self, object, length + 1, nil, path)
  end
end

-- inside: whether the table belongs to a module, so that its code may find tensors and modules in
-- it by any name.
local function visit_table(self, object, path, given, inside)
  local known = self.known[object] or {node = reads.node(), methods = {}, own = {}}
  local changed = known.node:add(given)
  if self.known[object] and not changed and (known.inside or not inside) then return end
  self.known[object], known.inside = known, inside or known.inside
  local node = known.node
  if debug.getmetatable(object) then node.escaped = true end
  guard_classes(self, object, path)
  visit_operators(self, object, path)
  for _, hook in ipairs(hooks.functions(object)) do visit(self, hook, path) end
  local names = add_functions(self, object, known)
  add_computed(self, object, node, names)
  visit_names(self, object, names, path, known, inside)
  visit_list(self, object, names, path, node, inside)
  if node.counted or self.iterates and node.escaped and not debug.getmetatable(object) then
    self.guarded:add_size(object, path)
  end
  if not inside then return end
  for key, value in pairs(object) do
    if type(key) == "string" and not names[key] and type(value) == "table" then
      local here = path .. "." .. key
      if debug.getmetatable(value) then guard(self, object, key, value, here) end
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

-- The modules that code may get from require: those whose names are texts in it.
local function visit_required(self, texts)
  local node = reads.node()
  node.escaped = true
  for name in pairs(texts) do
    local value = package.loaded[name]
    if value ~= nil and not self.own[value] then
      guard(self, package.loaded, name, value, name)
      visit(self, value, name, node)
    end
  end
end

-- The functions in Lua's own tables that code reads by their names: a user may replace them.
local function visit_standard(self, object, path, node)
  for name in pairs(node and node:names(self.unknown) or {}) do
    local f = rawget(object, name)
    if type(f) == "function" then guard(self, object, name, f, path .. "." .. name) end
  end
end

local function visit_function(self, f, path)
  if self.seen[f] or not source_of(f) then return end
  self.seen[f] = true
  if not (is_users(f) or f == self.f) then return visit_given(self, f, path) end
  local read = reads.of(f)
  for name, how in pairs(read.unknown) do
    if self.unknown[name] ~= true and self.unknown[name] ~= how then
      self.unknown[name], self.grew = how, true
    end
  end
  if read.iterates and not self.iterates then self.iterates, self.grew = true, true end
  for i = 1, debug.getinfo(f, "u").nups do
    local name, value = debug.getupvalue(f, i)
    local node = read.upvalues.fields[name]
    if node then
      guard(self, f, i, value, name, "upvalues")
      visit(self, value, name, node)
    end
  end
  local globals = getfenv(f)
  if next(read.globals.fields) then
    guard(self, f, nil, globals, path, "environments")
  end
  if read.globals.fields.require or read.upvalues.fields.require then
    visit_required(self, read.texts)
  end
  for name in pairs(read.globals.fields) do
    visit_field(self, globals, name, "", read.globals)
  end
end

-- node: how code reads the value; nil for a function.
function visit(self, value, path, node, inside)
  if type(value) == "function" then return visit_function(self, value, path) end
  if type(value) == "cdata" then return self.guarded:add_data(value, path) end
  if type(value) ~= "table" then return end
  if lua[value] then return visit_standard(self, value, path, node) end
  if self.own[value] then return end
  if is_tensor(value) then
    if self.seen[value] then return end
    self.seen[value] = true
    return guard(self, value, "requires_grad", rawget(value, "requires_grad"),
                 path .. ".requires_grad")
  end
  local class = debug.getmetatable(value)
  local of_library = type(class) == "table" and rawget(class, "type_name")
  if of_library == "compiled function" then return visit(self, value.f, path, node) end
  if not of_library then
    visit_table(self, value, path, node, inside or module.is_module(value))
  end
end

local function walk(self)
  self.seen, self.known, self.guarded, self.grew = {}, {}, guarded.new(), false
  visit(self, self.f, module.is_module(self.f) and self.f.class_name or "", reads.node())
end

local unknown_of = setmetatable({}, {__mode = "k"})       -- what unknown values are read by

--- of(f, lengths) -> the guards (guarded.lua) of a function, or of a callable table: what it would
--- read now. lengths: whether the length of a list counts to which code only appends.
function M.of(f, lengths)
  local self = {f = f, own = own_tables(), unknown = unknown_of[f] or {}, lengths = lengths}
  unknown_of[f] = self.unknown
  repeat walk(self) until not self.grew
  self.guarded:close()
  return self.guarded
end

return M
