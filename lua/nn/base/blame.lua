-- Where an error comes from: the line in the user's code, and the path of the running module.
--
-- LuaJIT drops the frame of a function that ends in `return f(x)`, so the line of a module's
-- `return self.down(h)` is not on the stack. The call of the module is (lua/nn/core/module.lua),
-- and the line is then read from the bytecode of its forward. Of other functions, the name is known
-- by which they were called.

local bytecode = require "nn.base.bytecode"
local host = require "nn.host"
local util = require "jit.util"

-- call, paths: set by module.lua: the function that calls forward, and paths(object) -> {[module] =
-- path} of the modules in it. finally: set by capi.lua: its function, which calls its argument f.
local M = {call = nil, paths = nil, finally = nil}
local DEEPEST = 250                      -- frames

local function is_in(source, folder)
  local start = "@" .. host.root .. "/" .. folder .. "/"
  return source:sub(1, #start) == start
end

-- Whether code is the library's. with_models: whether models/ counts as such.
local function is_own(source, with_models)
  return is_in(source, "lua") or source == "=repl" or with_models and is_in(source, "models")
end

-- {line, ...} of the tail calls of a function, and {[line] = true} of those that read a field.
local function tail_calls(f, field)
  local lines, reads = {}, {}
  for pc = 1, util.funcinfo(f).bytecodes - 1 do
    local op, _, _, c = bytecode.decode(f, pc)
    local line = util.funcinfo(f, pc).currentline
    if op == bytecode.TAIL_CALL or op == bytecode.TAIL_CALL_ALL then lines[#lines + 1] = line end
    if op == bytecode.FIELD and bytecode.constant(f, c) == field then reads[line] = true end
  end
  return lines, reads
end

-- The line of a function's tail call, of several the one that reads the field; else its first line.
local function tail_line(f, field)
  local lines, reads = tail_calls(f, field)
  if #lines == 1 then return lines[1] end
  for _, line in ipairs(lines) do
    if reads[line] then return line end
  end
  return debug.getinfo(f, "S").linedefined
end

local function name_in(object, value)
  for name, field in pairs(object) do
    if rawequal(field, value) then return name end
  end
end

-- The place in the forward of a module that is not on the stack, because it ended in a tail call;
-- nil if its forward is the library's. inner: the module that it called, if any.
local function in_forward(object, inner, with_models)
  local forward = object.forward
  local info = type(forward) == "function" and debug.getinfo(forward, "S")
  if not info or info.what == "C" or is_own(info.source, with_models) then return nil end
  return info.short_src .. ":" .. tail_line(forward, inner and name_in(object, inner)), info.source
end

local function get(object, name) return object[name] end

-- The value in a register before instruction pc of the code at `level`, if its origin is known. The
-- parentheses keep calls from being tail calls, which would change the levels.
local function register_value(level, code, pc, register)
  local name, value = debug.getlocal(level + 1, register + 1)
  if name and name:sub(1, 1) ~= "(" then return value end
  for before = pc - 1, 1, -1 do
    local op, a, b, c, d = bytecode.decode(code, before)
    if a == register then
      if op == bytecode.UPVALUE then return (select(2, debug.getupvalue(code, d + 1))) end
      if op == bytecode.GLOBAL then return rawget(getfenv(code), bytecode.constant(code, d)) end
      if op == bytecode.MOVE then return (register_value(level + 1, code, before, d)) end
      if op ~= bytecode.FIELD then return nil end
      local object = register_value(level + 1, code, before, b)
      local good, found = pcall(get, object, bytecode.constant(code, c))
      return good and found or nil
    end
  end
end

-- The field of this name that code at `level` reads in its current line; nil if there are several.
local function field_value(level, code, name)
  local line, value = debug.getinfo(level + 1, "l").currentline, nil
  for pc = 1, util.funcinfo(code).bytecodes - 1 do
    local op, _, b, c = bytecode.decode(code, pc)
    if op == bytecode.FIELD and util.funcinfo(code, pc).currentline == line
       and bytecode.constant(code, c) == name then
      local good, found = pcall(get, register_value(level + 1, code, pc, b), name)
      if not good or value ~= nil and not rawequal(value, found) then return nil end
      value = found
    end
  end
  return value
end

-- The value that code at `level` called by a name, or nil.
local function called_value(level, code, name, kind)
  local value
  if kind == "field" or kind == "method" then return (field_value(level + 1, code, name)) end
  if kind == "local" then
    for i = 1, DEEPEST do
      local found, local_value = debug.getlocal(level + 1, i)
      if not found then return value end
      if found == name then value = local_value end
    end
  elseif kind == "upvalue" then
    for i = 1, debug.getinfo(code, "u").nups do
      local found, upvalue = debug.getupvalue(code, i)
      if found == name then return upvalue end
    end
  elseif kind == "global" then
    return rawget(getfenv(code), name)
  end
end

-- The place in a function that ended in a tail call, so that the next frame belongs to another
-- function; nil if it has no tail calls or is the library's.
local function in_ended(f, with_models)
  local info = type(f) == "function" and debug.getinfo(f, "S")
  if not info or info.what == "C" or is_own(info.source, with_models) or #tail_calls(f) == 0 then
    return nil
  end
  return info.short_src .. ":" .. tail_line(f), info.source
end

-- The place in a function that code at `level` called, if that ended in a tail call; or nil.
local function in_tail_call(level, code, with_models)
  if code == M.finally then
    local _, f = debug.getlocal(level + 1, 2)
    return in_ended(f, with_models)
  end
  local next_frame = debug.getinfo(level, "nf")
  local f = called_value(level + 1, code, next_frame.name, next_frame.namewhat)
  if f ~= next_frame.func then return in_ended(f, with_models) end
end

--- place(with_models) -> "script.lua:12" and its source: the innermost code outside the library, or
--- nil. with_models: whether the library includes models/.
function M.place(with_models)
  local inner
  for level = 3, DEEPEST do
    local info = debug.getinfo(level, "Slf")
    if not info then return nil end
    local place, source
    if M.call and info.func == M.call then
      local _, object = debug.getlocal(level, 1)
      place, source = in_forward(object, inner, with_models)
      inner = object
    elseif info.what ~= "C" and info.currentline > 0 then
      place, source = in_tail_call(level, info.func, with_models)
      if not place and not is_own(info.source, with_models) then
        place, source = info.short_src .. ":" .. info.currentline, info.source
      end
    end
    if place then return place, source end
  end
end

--- in_library() -> whether the innermost code is the library's.
function M.in_library()
  for level = 3, DEEPEST do
    local info = debug.getinfo(level, "S")
    if not info then return false end
    if info.what ~= "C" then return is_own(info.source) end
  end
end

--- variables() -> the set of the names of the local variables and upvalues of the innermost code
--- outside the library.
function M.variables()
  local set = {}
  for level = 3, DEEPEST do
    local info = debug.getinfo(level, "Sf")
    if not info then return set end
    if info.what ~= "C" and not is_own(info.source) then
      for i = 1, DEEPEST do
        local name = debug.getlocal(level, i)
        local upvalue = debug.getupvalue(info.func, i)
        if not name and not upvalue then return set end
        set[name or upvalue], set[upvalue or name] = true, true
      end
    end
  end
  return set
end

--- in_recipe(source) -> whether code is one of nnlua's own recipes.
function M.in_recipe(source) return is_in(source, "recipes") end

--- module() -> " (in blocks.3.mlp)" inside a module of another module, else "".
function M.module()
  local innermost, outermost
  for level = 3, DEEPEST do
    local info = debug.getinfo(level, "f")
    if not info then break end
    if M.call and info.func == M.call then
      local _, object = debug.getlocal(level, 1)
      innermost, outermost = innermost or object, object
    end
  end
  local path = innermost and innermost ~= outermost and M.paths(outermost)[innermost]
  return path and (" (in %s)"):format(path) or ""
end

return M
