-- Edited modules: a file that `require` loaded is loaded again once it has changed, and its tables
-- and classes get the new contents in place. So objects that exist keep their fields, such as
-- weights, and have the new methods. The library's own files are not watched.
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local session = require "repl.session"

local M = {}

-- The watched modules in the order in which their loading ended, so a module follows those that it
-- requires: {name=, path=, real=, stamp=, classes = {[class name] = {class, ...}}}.
local watched = {}
local loading              -- the module whose file runs

-- f(...) while `record` is the module whose file runs; nil: none.
local function within(record, f, ...)
  local outer = loading
  loading = record
  if record then record.counts = {} end
  return lib.finally(function() loading = outer end, f, ...)
end

local function clear(t)
  for key in pairs(t) do rawset(t, key, nil) end
  setmetatable(t, nil)
end

-- Makes `target` a shallow copy of `source`.
local function become(target, source)
  clear(target)
  for key, value in pairs(source) do
    rawset(target, key, rawequal(value, source) and target or value)
  end
  setmetatable(target, getmetatable(source))
end

-- The table for a class: when its file is loaded again, that of the class of the same name, empty.
function module.class_table(name)
  if not loading then return {} end
  local classes, counts = loading.classes, loading.counts
  classes[name] = classes[name] or {}
  counts[name] = (counts[name] or 0) + 1
  local class = classes[name][counts[name]]
  if class then clear(class) end
  classes[name][counts[name]] = class or {}
  return classes[name][counts[name]]
end

local function watch(record)
  for i, other in ipairs(watched) do
    if other.name == record.name then table.remove(watched, i) break end
  end
  watched[#watched + 1] = record
end

-- Wraps Lua's loader of files, `find`: the result of its chunk is a watched module. After an error
-- the module can be required again, once its file is corrected.
local function watching(find)
  local library = host.root .. "/lua/"
  return function(name)
    local path = host.find_module(name)
    local record = path and {name = name, path = path, real = files.real_path(path),
                             stamp = file_type.stamp(path), classes = {}}
    local chunk = find(name)
    if type(chunk) ~= "function" or not record then return chunk end
    if path:sub(1, #library) == library then record = nil end
    return function(...)
      local value = lib.guarded(function() package.loaded[name] = nil end, within, record, chunk,
                                ...)
      if record then watch(record) end
      return value
    end
  end
end

local started = false
--- start(): watches the modules that are required from here on.
function M.start()
  if not started then package.loaders[2] = watching(package.loaders[2]) end
  started = true
end

-- Replaces `old` by `new` in the upvalues of f and of the functions of the same file among them.
local function repoint(f, old, new, seen)
  if seen[f] then return end
  seen[f] = true
  local source = debug.getinfo(f, "S").source
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    if rawequal(value, old) then debug.setupvalue(f, i, new) end
    if type(value) == "function" and debug.getinfo(value, "S").source == source then
      repoint(value, old, new, seen)
    end
  end
end

-- The result of a module that was loaded again takes the place of its earlier one.
local function replace(record, value)
  local old = package.loaded[record.name]
  if value == nil or rawequal(value, old) then return end
  if type(old) ~= "table" or type(value) ~= "table" then
    package.loaded[record.name] = value
    return
  end
  become(old, value)
  local tables, seen = {old}, {}
  for _, list in pairs(record.classes) do
    for _, class in ipairs(list) do tables[#tables + 1] = class end
  end
  for _, t in ipairs(tables) do
    for _, f in pairs(t) do
      if type(f) == "function" then repoint(f, value, old, seen) end
    end
  end
end

-- Copies of the classes of a module, {[class] = copy}.
local function copies_of(record)
  local copies = {}
  for _, list in pairs(record.classes) do
    for _, class in ipairs(list) do
      copies[class] = {}
      become(copies[class], class)
    end
  end
  return copies
end

-- Loads a module again. An error keeps the earlier code.
local function load_again(record, shown)
  local chunk, problem = loadstring(files.read(record.real), "@" .. record.path)
  local copies, good, value = copies_of(record), false, nil
  if chunk then
    good, value = session.guarded(within, record, chunk, record.name)
  else
    session.complain("error: " .. problem)
  end
  if good then
    replace(record, value)
    module.version = module.version + 1
    return print("reloaded " .. shown)
  end
  for class, copy in pairs(copies) do become(class, copy) end
  session.complain(shown .. " has changed, but its earlier code stays")
end

--- changed(): loads the modules again whose files have changed, and prints their paths.
function M.changed()
  local here = files.join(files.real_path "." or "", "")
  for _, record in ipairs(watched) do
    local stamp = file_type.stamp(record.real)
    if stamp and stamp ~= record.stamp then
      record.stamp = stamp
      local inside = record.real:sub(1, #here) == here
      load_again(record, inside and record.real:sub(#here + 1) or record.real)
    end
  end
end

return M
