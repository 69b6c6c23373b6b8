-- Guards of compiled functions for what is no plain field: metatables, environments, modules of
-- require, data of ffi, Lua's own functions and long lists. A change is followed, or a warning says
-- that it is not.
local ffi = require "ffi"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local warnings = require "warnings"
local x = nn.ones(1)

-- A compiled function is compared with the function itself before and after each of some changes,
-- and does not record again without one.
local function follows(f, ...)
  local compiled = nn.compile(f)
  for i = 0, select("#", ...) do
    if i > 0 then select(i, ...)() end
    t.same({i, compiled(x):table()}, {i, f(x):table()})
    local count = compiled.count + compiled.dropped
    compiled(x)
    t.same({i, compiled.count + compiled.dropped}, {i, count})
  end
end

t.case("another metatable of a table, or of its class, is followed", function()
  local one, two = {__index = {k = 2}}, {__index = {k = 3}}
  local object = setmetatable({}, one)
  follows(function(v) return v * object.k end, function() setmetatable(object, two) end,
          function() two.__index = {k = 4} end, function() two.__index.k = 5 end)
  local function adder(n) return {__call = function(_, v) return v + n end} end
  local callable = setmetatable({}, adder(1))
  follows(function(v) return callable(v) end, function() setmetatable(callable, adder(2)) end,
          function() getmetatable(callable).__call = function(_, v) return v + 7 end end)
  local Base, Other = {by = 2}, {by = 6}
  local Class = setmetatable({}, {__index = Base})
  Class.__index = Class
  local instance = setmetatable({}, Class)
  follows(function(v) return v * instance.by end,
          function() setmetatable(Class, {__index = Other}) end)
end)

t.case("a locked metatable is no error, and what it leads to is followed", function()
  for _, lock in ipairs {"locked", false, 1} do
    local class = {k = 2, __metatable = lock}
    class.__index = class
    local object = setmetatable({}, class)
    follows(function(v) return v * object.k end, function() class.k = 3 end,
            function() rawset(object, "k", 4) end)
    local scaled = setmetatable({}, {__call = function(_, v) return v * 2 end, __metatable = lock})
    t.same(nn.compile(scaled)(x), {2})
    local list = setmetatable({nn.ones(1), nn.ones(1)}, {__metatable = lock})
    follows(function(v)
      for i = 1, #list do v = v + list[i] end
      return v
    end, function() list[1] = nn.ones(1) * 5 end)
  end
end)

t.case("another environment of a function is followed", function()
  local function f(v) return v * factor end                -- luacheck: ignore 113
  setfenv(f, {factor = 2})
  follows(f, function() setfenv(f, {factor = 3}) end, function() getfenv(f).factor = 4 end)
end)

t.case("fields of modules that require returns are followed", function()
  local module = {k = 2, inner = {k = 1}, scale = function(v) return v * 2 end}
  package.loaded["test.module"] = module
  follows(function(v)
    local m = require "test.module"
    return m.scale(v) * m.k + require("test.module").inner.k
  end, function() module.k = 3 end, function() module.inner.k = 5 end,
  function() module.scale = function(v) return v * 3 end end,
  function() package.loaded["test.module"] = {k = 1, inner = {k = 0}, scale = module.scale} end)
  local upvalue = module
  follows(function(v) return upvalue.scale(v) * upvalue.k end, function() module.k = 9 end)
  package.loaded["test.module"] = nil
end)

t.case("bytes of structures and arrays of ffi are followed", function()
  local array, pair = ffi.new("double[?]", 3, 1, 2, 3), ffi.new "struct { float a, b; }"
  local holder, long = {data = ffi.new "int[4]"}, 5LL
  follows(function(v) return v * array[1] + pair.b + holder.data[2] + tonumber(long) end,
          function() array[1] = 7 end, function() pair.b = 2 end,
          function() holder.data[2] = 3 end, function() long = 6LL end,
          function() holder.data = ffi.new("int[4]", 1) end)
  local text = warnings(function()
    nn.compile(function(v)
      array[2] = array[2] + 1
      return v
    end)(x)
  end)
  t.check(text:find("it changed 'array' in its bytes while it was recorded", 1, true), text)
end)

t.case("replaced functions of Lua's own tables are followed", function()
  local floor, format = math.floor, string.format
  follows(function(v) return v * math.floor(2.5) + tonumber(string.format("%d", 3)) end,
          function() rawset(math, "floor", math.ceil) end,
          function() rawset(math, "floor", floor) end,
          function() rawset(string, "format", function() return "8" end) end)
  rawset(string, "format", format)
  local is_random = false
  nn.compile(function(v) return is_random and v * math.random() or v end)(x)
end)

t.case("elements beyond 1024 are followed, and only where code reads by computed names", function()
  local list, at = {}, 3000
  for i = 1, 5000 do list[i] = i end
  follows(function(v) return v * list[at] end, function() list[3000] = 1 end,
          function() list[4000] = 0 / 0 end, function() list[5000] = 2 end)
  local function sum(v)
    for _, w in ipairs(list) do v = v + w % 10 end
    return v
  end
  list[4000] = 1
  follows(sum, function() list[1500] = 9 end, function() list[4999] = 8 end)
  follows(function(v) return v + #table.concat(list) end, function() list[2500] = 123456 end)
  local objects = setmetatable({}, {__index = function() error "it was asked" end})
  for i = 1, 2000 do rawset(objects, i, {w = i}) end
  follows(function(v) return v * objects[at / 2].w end, function() objects[1500].w = 2 end)
  rawset(objects, 2000, nil)
  nn.compile(function(v) return v * objects[at / 2].w end)(x)
  local compiled = nn.compile(function(v) return v * #list end)
  compiled(x)
  list[2000] = 7
  compiled(x)
  t.same(compiled.count + compiled.dropped, 1)
end)

t.case("what is not compared is reported once", function()
  local data = ffi.new("float[4]", 1)
  local pointer, large = ffi.cast("float *", data), ffi.new "char[100000]"
  local list, rows, none = {}, ffi.cast("float (*)[4]", data), ffi.new "float (*)[4]"
  ffi.cdef "typedef struct { int n; float data[]; } nn_test_flexible;"
  local flexible = ffi.cast("nn_test_flexible *", ffi.new "char[64]")
  for i = 1, 200000 do list[i] = i end
  for what, f in pairs {
    ["'pointer' is a pointer, and what it points to is not compared"] =
      function(v) return v * pointer[0] end,
    ["'large' is data of 100000 bytes; 65536 are compared, and 1048576 in all"] =
      function(v) return v * large[0] end,
    ["'rows' is a pointer, and what it points to is not compared"] =
      function(v) return v * rows[0][1] end,
    ["'none' is a pointer, and what it points to is not compared; 'pointer' is a pointer, and what "
     .. "it points to is not compared"] =
      function(v) return v * (none == nil and pointer[0] or 1) end,
    ["'flexible' is a pointer, and what it points to is not compared"] =
      function(v) return v * flexible.data[0] end,
    ["'list' has 200000 elements, of which the first 1024 are compared"] =
      function(v) return v * list[v:dim(1)] end,
  } do
    local compiled = nn.compile(f)
    local text = warnings(function() for size = 1, 3 do compiled(nn.ones(size)) end end)
    t.check(text:find(what .. "; calls that replay the recording do not follow", 1, true), text)
    t.same(select(2, text:gsub("warning", "")), 1)
  end
  t.same(warnings(function() nn.compile(function(v) return v * #list end)(x) end), "")
end)

t.finish()
