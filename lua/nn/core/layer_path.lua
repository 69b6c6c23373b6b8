-- Which layer is at work, as a path such as "blocks.3.mlp": told to the engine while something is
-- recorded or profiled, so that profiles and traces name the module that a task belongs to. The
-- tape keeps it for the backward ops. At other times a module call costs one look at `named`.

local ffi = require "ffi"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {named = false, now = nil}   -- now: the number of the layer at work; nil while not named
local told                             -- the one that the engine knows
local numbers, paths = {}, {}          -- by path; the other way
local root, names                      -- the outermost module at work; the paths of those in it
M.paths = nil   -- set by module.lua: paths(object) -> {[module] = path} of those in its fields

local function number_of(path)
  local number = numbers[path]
  if not number then
    local out = ffi.new "int32_t[1]"
    check(C.nn_layer(path, out))
    number = out[0]
    numbers[path], paths[number] = number, path
  end
  return number
end

--- set(number): the layer at work from now on; nil: none.
function M.set(number) M.now = number end

--- tell(): before every call that makes tasks, while `named`. Most modules have no op of their own,
--- and the same one is often called again: the engine hears only of changes that matter.
function M.tell()
  if M.now == told then return end
  told = M.now
  check(C.nn_layer_set(told or 0, nil))
end

--- at_parameter(path): the layer that a parameter belongs to is at work from now on.
function M.at_parameter(path)
  if M.named then M.set(number_of(path:match "^(.*)%.[^.]*$" or path)) end
end

--- start() -> what stop() needs: from now on layers are named.
function M.start()
  local before = {named = M.named, now = M.now, root = root, names = names}
  M.named = true
  return before
end

function M.stop(before)
  M.named, root, names = before.named, before.root, before.names
  M.set(before.now)
  M.tell()
end

local function restore(before, ...)
  M.set(before)
  return ...
end

-- A module that is in no field of the outermost one is named after its class.
local function path_of(object)
  if not root then return object.class_name or "model" end
  names = names or M.paths(root)
  local around = paths[M.now]
  return names[object] or (around and around .. "." or "") .. object.class_name
end

--- call(object, f, ...) -> f(object, ...), as the work of this module: object's own ops have the
--- name of its class if it is the outermost, else its path there.
function M.call(object, f, ...)
  if not M.named then return f(object, ...) end
  local before, path = M.now, path_of(object)
  M.set(number_of(path))
  if root then return restore(before, f(object, ...)) end
  root = object
  return lib.finally(function()
    root, names = nil, nil
    M.set(before)
  end, f, object, ...)
end

return M
