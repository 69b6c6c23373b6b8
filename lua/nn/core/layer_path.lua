-- The path of the current layer, such as "blocks.3.mlp". While a function is recorded or profiled,
-- the engine gets this path, so that profiles and traces name the module of each task. The tape
-- stores it for the backward ops. At other times a module call only checks `named`.

local ffi = require "ffi"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {named = false, now = nil}   -- now: number of the current layer; nil while not `named`
local sent                             -- the number that the engine has
local numbers, paths = {}, {}          -- numbers[path], paths[number]
local root, names                      -- outermost running module; paths of the modules in it
M.paths = nil   -- set by module.lua: paths(object) -> {[module] = path} of the modules in it

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

--- set(number): sets the current layer; nil: none.
function M.set(number) M.now = number end

--- send(): sends the current layer to the engine if it changed. While `named`, it is called before
--- every call that creates tasks, not in set(): most modules have no op of their own.
function M.send()
  if M.now == sent then return end
  sent = M.now
  check(C.nn_layer_set(sent or 0, nil))
end

--- at_parameter(path): sets the current layer to that of a parameter.
function M.at_parameter(path)
  if M.named then M.set(number_of(path:match "^(.*)%.[^.]*$" or path)) end
end

--- start() -> the state for stop(): from now on layers are named.
function M.start()
  local before = {named = M.named, now = M.now, root = root, names = names}
  M.named = true
  return before
end

function M.stop(before)
  M.named, root, names = before.named, before.root, before.names
  M.set(before.now)
  M.send()
end

local function restore(before, ...)
  M.set(before)
  return ...
end

-- The path of a module in the outermost one; a module outside it is named after its class.
local function path_of(object)
  if not root then return object.class_name or "model" end
  names = names or M.paths(root)
  local around = paths[M.now]
  return names[object] or (around and around .. "." or "") .. object.class_name
end

--- call(object, f, ...) -> f(object, ...), with this module as the current layer. The ops of the
--- outermost module have the name of its class, those of other modules their path in it.
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
