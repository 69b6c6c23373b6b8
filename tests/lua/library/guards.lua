-- Guards of compiled functions: they record again when a Lua value that they read changed, and say
-- what they cannot follow.
local guards = require "nn.core.guards"
local nn = require "nn"
local t = require "nn.test"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local warnings = require "warnings"
local GPT2 = require "models.gpt2"

local x = nn.ones(1)

-- A function that counts its recordings, and the count.
local function counted(f)
  local recordings = {}
  return nn.compile(function(...)
    recordings[#recordings + 1] = true
    return f(...)
  end), recordings
end

t.case("a changed upvalue, global, field or list element is followed", function()
  local k, settings = 1, {scale = 2, list = {3}, deep = {shift = 0}}
  rawset(_G, "test_global", 5)
  local f = nn.compile(function(v)
    return v * k * settings.scale * settings.list[1] * test_global  -- luacheck: ignore 113
           + settings.deep.shift
  end)
  t.same(f(x), {30})
  k = 7
  t.same(f(x), {210})
  settings.scale = 1
  t.same(f(x), {105})
  settings.list[1] = 1
  t.same(f(x), {35})
  rawset(_G, "test_global", 1)
  t.same(f(x), {7})
  settings.deep = {shift = 0.5}
  t.same(f(x), {7.5})
  rawset(_G, "test_global", nil)
end)

t.case("what was nil and is set, and a replaced function, are followed", function()
  local state = {}
  local function double(v) return v * 2 end
  local f = nn.compile(function(v) return state.twice and double(v) or v end)
  t.same(f(x), {1})
  state.twice = true
  t.same(f(x), {2})
  function double(v) return v * 3 end
  t.same(f(x), {3})
end)

t.case("values that called functions, methods and wrapped functions read are followed", function()
  local k, helpers, Scale = 2, {}, nn.module "Scale"
  function helpers.scaled(v) return v * k end
  function Scale:init() self.by = 1 end
  function Scale:factor() return self.by * k end
  function Scale:forward(v) return v * self:factor() end
  local scale = Scale()
  local functions = {
    nn.compile(function(v) return helpers.scaled(v) end), nn.compile(scale),
    nn.compile(function(v) return scale(v) end),
    nn.compile(function(v) return (nn.grad(function(w) return (w * k):sum() end)(v)) end),
    nn.compile(nn.compile(function(v) return v * k end)),
  }
  for now = 2, 4 do
    k = now
    for _, f in ipairs(functions) do t.same(f(x):item(), now) end
  end
  function Scale:factor() return self.by * k * 0.5 end
  t.same(functions[2](x), {2})
  function Scale:factor() return self.by * k end
  scale.by = 10
  t.same(functions[2](x), {40})
  t.same(functions[3](x), {40})
end)

t.case("a replaced or frozen parameter and a changed setting of a layer are followed", function()
  local net = nn.Sequential {nn.Linear(1, 1, {bias = false}), nn.Dropout(0)}
  local f = nn.compile(function(v) return net(v) end)
  local input = nn.ones(1, 1)
  f(input)
  net[1].weight = nn.parameter({1, 1}, {value = 3})
  t.same(f(input), {{3}})
  net[1].bias = nn.parameter({1}, {value = 4})
  t.same(f(input), {{7}})
  net[2].p = 0.999999
  t.same(f(input), {{0}})
  local w, v = nn.tensor({1}, {grad = true}), nn.tensor({1}, {grad = true})
  local g = nn.compile(function(u)
    (w * v * u):sum():backward()
    return w.grad or u * 0
  end)
  t.same(g(x), {1})
  w.requires_grad = nil
  t.same(g(x), {0})
end)

t.case("values that come back use their recording again", function()
  local on = true
  local f, recordings = counted(function(v) return on and v + 1 or v end)
  for _ = 1, 10 do
    on = not on
    t.same(f(x), {on and 2 or 1})
  end
  t.same(#recordings, 2)
  t.check(tostring(f):find "recorded for 1 shapes", tostring(f))
end)

t.case("what the function does not read, or only writes, records nothing again", function()
  local model = GPT2 {layers = 2, heads = 1, embd = 8, context = 8, vocab = 11}
  local optim, cache, last = nn.AdamW(model), {}, nil
  local cfg = {accum = 2, step = 0}
  local f, recordings = counted(function(ids)
    cache.mask = cache.mask or 1
    optim:zero_grad()
    local loss = nn.accumulate(model, cfg.accum, ids, ids)
    last = loss:detach()
    return loss, optim:step()
  end)
  local ids = nn.zeros({2, 8}, {dtype = "i32", axes = "batch,time"})
  for step = 1, 6 do
    cfg.step, optim.lr, cache.other, model.note = step, 1 / step, step, {step}
    f(ids)
    nn.evaluate(model, {windows = function() return function() end end}, 1)
  end
  t.check(last ~= nil)
  t.same(#recordings, 1)
end)

-- Compares compiled functions with the functions themselves, before and after each of some changes.
-- cases: {name = {f, change, ...}}.
local function follows(cases, input)
  for name, case in pairs(cases) do
    local f = nn.compile(case[1])
    for i = 1, #case do
      if i > 1 then case[i]() end
      t.same({name, i - 1, f(input or x):table()}, {name, i - 1, case[1](input or x):table()})
    end
    local count = f.count + f.dropped
    f(input or x)
    t.same({name, f.count + f.dropped}, {name, count})
  end
end

t.case("lists and tables that are read by computed names are followed", function()
  local list, key, memo = {2}, "a", {}
  local named = {a = 2, [0] = 2, [list] = 3}
  local settings, options = {k = 2}, {stride = 1}
  local weight = nn.ones(1, 1, 2)
  local function product(of, v)
    for _, k in pairs(of) do v = v * k end
    return v
  end
  follows {
    ["a list that grows"] = {function(v)
      for i = 1, #list do v = v * list[i] end
      return v
    end, function() list[2] = 5 end, function() list[2] = nil end},
    ["pairs"] = {function(v)
      for _, k in pairs(settings) do v = v * k end
      return v
    end, function() settings.k = 3 end, function() settings.z = 4 end},
    ["pairs in another function"] = {function(v) return product(settings, v) end,
                                     function() settings.k = 7 end, function() settings.y = 2 end},
    ["a computed name"] = {function(v) return v * named[key] end, function() named.a = 4 end,
                           function() key = 0 end, function() named[0] = 9 end},
    ["a table as a key"] = {function(v) return v * named[list] end,
                            function() named[list] = 4 end},
    ["options of the library"] = {function(v)
      return nn.conv1d(v:expand(1, 1, 6), weight, nil, options)
    end, function() options.stride = 2 end},
    ["a cache"] = {function(v)
      memo[#v.shape] = memo[#v.shape] or 2
      return v * memo[#v.shape]
    end},
  }
end)

t.case("objects, classes and their ancestors are followed", function()
  local Base, object, defaults = {}, {k = 2}, {k = 2}
  Base.__index = Base
  function Base:scaled(v) return v * self.k end
  Base.__call = function(self, v) return v * self.k * defaults.k end
  function object:scaled(v) return v * self.k end
  local Derived = setmetatable({}, Base)
  Derived.__index = Derived
  local derived = setmetatable({k = 2}, Derived)
  local given = setmetatable({}, {__index = defaults})
  local called = setmetatable({k = 2}, Base)
  local Layer = nn.module "Layer"
  Layer.k = 2
  function Layer:forward(v) return v * self.k end
  local layer, linear, hooked, added = Layer(), nn.Linear(1, 1), Layer(), 1
  hooked:register_forward_hook(function(_, _, v) return v + added end)
  follows {
    ["a single object"] = {function(v) return object:scaled(v) end, function() object.k = 3 end},
    ["defaults"] = {function(v) return v * given.k end, function() defaults.k = 3 end,
                    function() given.k = 4 end},
    ["a class"] = {function(v) return derived:scaled(v) end, function() derived.k = 3 end,
                   function() function Base:scaled(v) return v * self.k * 2 end end,
                   function() function Derived.scaled(_, v) return v * 5 end end,
                   function() function derived.scaled(_, v) return v * 7 end end},
    ["a callable object"] = {function(v) return called(v) end, function() called.k = 3 end,
                             function() defaults.k = 5 end},
    ["a constant of a module's class"] = {function(v) return layer(v) end,
                                          function() Layer.k = 3 end, function() layer.k = 4 end},
    ["a hook"] = {function(v) return hooked(v) end, function() added = 2 end},
    ["the forward of one module"] = {function(v) return linear(v:reshape(1, 1)) end,
      function() function linear:forward(v) return v * (self.k or 3) end end,
      function() linear.k = 4 end},
  }
end)

t.case("objects that refer to each other are followed", function()
  local Node, nodes = {}, {}
  Node.__index = Node
  function Node:sum()
    local sum = self.k
    for _, other in ipairs(self.others) do
      if other.k > self.k then sum = sum + other:sum() end
    end
    return sum + (self.parent and self.parent.k or 0)
  end
  for i = 1, 20 do nodes[i] = setmetatable({k = i, others = nodes, parent = nodes[1]}, Node) end
  local own_class = {k = 2}
  own_class.__index = own_class
  setmetatable(own_class, own_class)
  follows {
    ["a graph"] = {function(v) return v * nodes[18]:sum() end, function() nodes[20].k = 21 end,
                   function() nodes[1].k = 2 end},
    ["its own class"] = {function(v) return v * own_class.k end, function() own_class.k = 3 end},
  }
end)

t.case("values are followed through variables, parameters and results", function()
  local a, b, use_a, set = {k = 2}, {k = 3}, true, {deep = {k = 2}}
  local function scaled(v, by) return v * by.k end
  local function current() return a end
  follows {
    ["a parameter"] = {function(v) return scaled(v, a) end, function() a.k = 3 end},
    ["a field of a parameter"] = {function(v) return scaled(v, set.deep) end,
                                  function() set.deep.k = 3 end},
    ["a result"] = {function(v) return v * current().k end, function() a.k = 4 end},
    ["either of two"] = {function(v)
      local one = use_a and a or b
      return v * one.k
    end, function() a.k = 5 end, function() use_a = false end, function() b.k = 7 end},
    ["a comparison"] = {function(v)
      local one = a
      if one ~= nil and one.k then return v * one.k end
    end, function() a.k = 8 end},
    ["a closure"] = {function(v)
      local one = a
      return (function() return v * one.k end)()
    end, function() a.k = 9 end},
    ["a table of _G"] = {function(v) return v * (_G.test_global or 1) end,
                         function() rawset(_G, "test_global", 5) end},
  }
  rawset(_G, "test_global", nil)
end)

t.case("a value that changes again and again is named once, and a counter is", function()
  local k, n = 0, 0
  local f = nn.compile(function(v) return v * k end)
  local text = warnings(function()
    for i = 1, 20 do
      k = i
      t.same(f(x), {i})
    end
  end)
  t.check(text:find("guards.lua:%d+: 'k' changed 8 times, now from 8 to 9"), text)
  t.same(select(2, text:gsub("\n", "")), 1)
  text = warnings(function()
    local counter = nn.compile(function(v)
      n = n + 1
      return v * n
    end)
    for _ = 1, 3 do counter(x) end
  end)
  t.check(text:find("it changed 'n' from 0 to 1 while it was recorded", 1, true), text)
  t.same(select(2, text:gsub("\n", "")), 1)
  local first, mean = true, nn.zeros(1)
  text = warnings(function()
    nn.compile(function(v)
      if first then v, first = v * 2, false end
      return v
    end)(x)
    nn.compile(function(v)
      mean = mean + v
      return mean
    end)(x)
  end)
  t.check(text:find("it changed 'first' from true to false", 1, true), text)
  t.check(text:find("it changed 'mean' to another tensor", 1, true), text)
end)

t.case("functions with other results at every call are refused, and work afterwards", function()
  local random = math.random
  local function noisy(v) return v * math.random() end
  for name, f in pairs {
    ["math.random in"] = function(v) return noisy(v) end,
    ["math.random"] = function(v) return v * random() end,
    ["os.clock"] = function(v) return v * os.clock() end,
    ["os.time"] = function(v) return v + os.time() end,
    ["io.open"] = function(v) return v * #io.open("/dev/null"):read "*a" end,
    ["nn.now"] = function(v) return v * nn.now() end,
    ["io.lines"] = function(v) for _ in io.lines "/dev/null" do v = v + 1 end return v end,
  } do
    t.fails(function() nn.compile(f)(x) end, name)
    t.fails(function() nn.compile(f)(x) end, "its result would be the same at every call")
  end
  t.check(math.random == random and type(os.clock()) == "number")
  nn.plan(function() return x * random() end)      -- runs once
end)

t.case("checking the guards takes less than 1 % of a step of the preset char", function()
  local model = GPT2 {layers = 4, heads = 4, embd = 128, context = 64, vocab = 65}
  local optim, accum = nn.AdamW(model), 1
  local function step(ids)
    local loss = nn.accumulate(model, accum, ids, ids)
    return loss, optim:step()
  end
  local compiled, ids = nn.compile(step), nn.zeros({12, 64}, {dtype = "i32", axes = "batch,time"})
  local own = guards.of(step)
  local function median(count, f)
    local seconds = {}
    for i = 1, count do
      local start = nn.now()
      f()
      seconds[i] = nn.now() - start
    end
    table.sort(seconds)
    return seconds[math.ceil(count / 2)]
  end
  local of_step = median(7, function() compiled(ids):item() end)
  local of_guards = median(101, function() t.check(own:hold()) end)
  t.check(own.count > 200, "guards: " .. own.count)
  t.check(of_guards < 0.01 * of_step, ("%.1f us, a step %.1f ms"):format(1e6 * of_guards,
                                                                       1e3 * of_step))
end)

t.finish()
