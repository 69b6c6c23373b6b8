-- nn.scalar wherever a number can stand, in compiled functions and outside: the bits of plain
-- numbers, or refused by name.

local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local samples = require "samples"

local function same_bits(got, expected, what)
  t.same(got.dtype, expected.dtype, what)
  t.near(got:table(), expected:table(), {abs = 0}, what)
end

-- Compiles f(x), calls it with the scalar at 7, then at each value: the bits of g(x, value) eager.
local function follows(what, f, g)
  local s, x = nn.scalar(7), nn.tensor {0.3, 1.7, 2.5}
  local compiled = nn.compile(function(y) return f(y, s) end)
  compiled(x)
  for _, value in ipairs {0.01, -3, 1 / 3} do
    s:set(value)
    same_bits(compiled(x), g(x, value), what .. ", compiled")
    same_bits(f(x, s), g(x, value), what .. ", eager")
  end
end

t.case("arithmetic of a tensor and an nn.scalar follows its value", function()
  for _, text in ipairs {"x + s", "s + x", "x - s", "s - x", "x * s", "s * x", "x / s", "s / x",
                         "x ^ s", "x % s", "x * -s", "-s * x", "x * (1 - s)", "x * (s * s)",
                         "x * (s + 2) / (3 - s)", "x * 2 ^ s", "x * (s ^ 2 / 4)",
                         "x * (s - s / 3)", "x:clamp(-1, s)", "x:clamp{max = s}", "x:maximum(s)",
                         "x:lerp(x * 2, s)", "x:addcmul(x, x, s)", "x:leaky_relu(s)",
                         "x:elu(s)", "x:masked_fill(x:gt(0), s)", "x:gt(s)", "x:le(s):to 'f32'",
                         "x:index_fill(1, {2}, s)", "nn.mse(x, s)",
                         "nn.full({2}, s)", "nn.full_like(x, s)", "x:clone():fill_(s)",
                         "x:clone():add_(x * s)", "x:to 'bf16' * s", "x:to 'f64' + s"} do
    local f = assert(loadstring("local nn, x, s = ... return " .. text))
    follows(text, function(x, s) return f(nn, x, s) end, function(x, s) return f(nn, x, s) end)
  end
end)

t.case("the warning's advice works: grad * -s with an nn.scalar", function()
  local w, s = nn.tensor({1, 2}, {grad = true}), nn.scalar(0.5)
  local step = nn.compile(function(x)
    local loss = (w * x):sum()
    loss:backward()
    nn.no_grad(function() w:add_(w.grad * -s) end)
    return loss
  end)
  step(nn.ones(2))
  s:set(2)
  step(nn.ones(2))
  t.near(w:table(), {-1.5, -0.5}, {abs = 0})
end)

-- Each number of a sample in turn as a scalar.
samples.each(function(declared, text)
  local inputs, values = samples.arguments(declared, text, "f32")
  local places = {}
  for i = 1, table.maxn(inputs) do
    if type(inputs[i]) == "number" then places[#places + 1] = {inputs, i} end
  end
  for i, attribute in ipairs(declared.attributes) do
    if attribute.kind == "number" and type(values[i]) == "number" then
      places[#places + 1] = {values, i}
    end
  end
  for _, place in ipairs(places) do
    t.case(("%s %s: number %d as an nn.scalar"):format(declared.name, text, place[2]), function()
      local list, at = unpack(place)
      local value = list[at]
      local expected = (samples.apply(declared, inputs, values))
      local s = nn.scalar(value * 0.5 + 0.125)
      list[at] = s
      same_bits((samples.apply(declared, inputs, values)),
                (function()
                  list[at] = s:get()
                  local out = (samples.apply(declared, inputs, values))
                  list[at] = s
                  return out
                end)(), "eager")
      local f = nn.compile(function() return (samples.apply(declared, inputs, values)) end)
      local good, message = pcall(f)
      list[at] = value
      if not good then
        local name = list == values and declared.attributes[at].name or declared.inputs[at].name
        return t.check(message:find(("%s: '%s' cannot be an nn.scalar in a compiled function; give "
                                     .. "a number"):format(declared.name, name), 1, true), message)
      end
      s:set(value)
      same_bits(f(), expected, "compiled")
    end)
  end
end)

t.case("gradients of a tensor times an nn.scalar use the value of the forward pass", function()
  local s = nn.scalar(3)
  local start = nn.tensor {1, 2}
  local function gradient_of(f)
    local w = start:clone()
    w.requires_grad = true
    f(w):sum():backward()
    return w.grad
  end
  for _, f in ipairs {function(w) return w * s end, function(w) return s / w end,
                      function(w) return w ^ s end, function(w) return w * -s + s end,
                      function(w) return (w * s):sum() * s end,
                      function(w) return w:clamp(-1, s) end} do
    local number
    s:set(3)
    local eager = gradient_of(function(w)
      local y = f(w)
      s:set(100)                         -- before backward()
      return y
    end)
    s:set(3)
    local compiled = nn.compile(function() return gradient_of(f) end)
    compiled()
    s:set(2)
    number = gradient_of(f)
    t.near(compiled():table(), number:table(), {abs = 0})
    s:set(3)
    t.near(eager:table(), gradient_of(f):table(), {abs = 0})
  end
end)

t.case("a scalar that changes between an op and its gradient is refused", function()
  local s, w = nn.scalar(1), nn.tensor({1, 2}, {grad = true})
  local f = nn.compile(function()
    local y = (w * (s * 2)):sum()
    s:add(1)
    y:backward()
    return w.grad
  end)
  t.fails(f, "changed by add() after an op used it, and its gradient needs the value before")
  local good = nn.compile(function()
    local y = (w * (s * 2)):sum()
    y:backward()
    s:add(1)
    return w.grad
  end)
  good()
  t.near(good():table(), {4, 4}, {abs = 0})
end)

t.case("additions to a scalar reach those that are computed from it, in order", function()
  local s = nn.scalar(0)
  local f = nn.compile(function(x)
    local before = x * (s * 10)
    s:add(1)
    return before, x * (s * 10 + 1)
  end)
  for call = 1, 3 do
    local before, after = f(nn.ones(1))
    t.near({before:item(), after:item()}, {10 * (call - 1), 10 * call + 1}, {abs = 0})
  end
end)

t.case("integers and an nn.scalar are computed in f32, whatever its value", function()
  local s, x = nn.scalar(2), nn.tensor({1, 2}, {dtype = "i64"})
  local f = nn.compile(function(y) return y * s end)
  for _, value in ipairs {2, 0.5} do
    s:set(value)
    same_bits(f(x), x:to "f32" * value, "compiled")
    same_bits(x * s, x:to "f32" * value, "eager")
  end
  s:set(2)
  t.fails(function() return nn.full({2}, s, {dtype = "i32"}) end,
          "full: an nn.scalar cannot fill a tensor of i32")
end)

t.case("optimizers take an nn.scalar as lr", function()
  local s = nn.scalar(0.5)
  for _, make in ipairs {function(w) return nn.SGD({w}, {lr = s}) end,
                         function(w) return nn.SGD({{params = {w}, lr = s}}) end,
                         function(w) return nn.SGD({{params = {w}}}, {lr = s}) end} do
    s:set(0.5)
    local w = nn.tensor({1}, {grad = true})
    local optim = make(w)
    local step = nn.compile(function(x)
      (w * x):sum():backward()
      return optim:step()
    end)
    step(nn.ones(1))
    s:set(2)
    step(nn.ones(1))
    t.near(w:item(), -1.5, {abs = 0})
    optim.lr = 3
    t.near(s:get(), 3, {abs = 0})
  end
  local halved = nn.SGD({nn.tensor({1}, {grad = true})}, {lr = s / 2})
  t.near(halved.lr, 1.5, {abs = 0})
  t.fails(function() halved.lr = 1 end, "a scalar that is computed from others cannot change")
end)

t.case("reading or setting a scalar inside a compiled function is refused", function()
  local s, optim = nn.scalar(1), nn.SGD({nn.tensor({1}, {grad = true})})
  local function refused(f, text) t.fails(function() nn.compile(f)(nn.ones(1)) end, text) end
  refused(function(x) return x * s:get() end, "get: in a compiled function it would happen once, "
          .. "not at each call; use the scalar itself: x * s")
  refused(function(x) s:set(2) return x end, "set: in a compiled function it would happen once")
  refused(function(x) return x * optim.lr end, "groups[i].rate is the nn.scalar of the rate")
  refused(function(x) optim.lr = 2 return x end, "lr: in a compiled function it would happen once")
  local f = nn.compile(function(x) return x * optim.groups[1].rate end)
  f(nn.ones(1))
  optim.lr = 4
  t.near(f(nn.ones(1)):item(), 4, {abs = 0})
end)

t.case("what scalars cannot do is refused by name", function()
  local s = nn.scalar(1)
  t.fails(function() return s < s + 1 end, "compare their numbers, s:get()")
  t.fails(function() return s % 2 end, "remainder: scalars have + - * / and ^")
  t.fails(function() return s + "a" end, "add: cannot combine a scalar and a string")
  t.fails(function() return nn.ones(2):norm(s) end, "norm: p is a scalar; a number is needed")
  t.fails(function() return nn.ones(2):sum(s) end, "sum: axis is a table")
  t.fails(function() (s * 2):set(1) end, "a scalar that is computed from others cannot change")
  t.fails(function() (s * 2):add(1) end, "a scalar that is computed from others cannot change")
  t.fails(function() s:add "a" end, "scalar: delta is 'a'; a number is needed")
  local many = s
  t.fails(function() for _ = 1, 1001 do many = many + 1 end end,
          "computed from others by more than 1000 operations")
end)

t.case("a scalar that is computed keeps what it is computed from", function()
  local f
  do
    local s = nn.scalar(3)
    local twice = s * 2
    f = nn.compile(function(x) return x * (twice + 1) end)
    f(nn.ones(1))
  end
  collectgarbage()
  collectgarbage()
  local others = {}
  for i = 1, 20 do others[i] = nn.scalar(-i) end     -- would take the numbers of freed scalars
  t.near(f(nn.ones(1)):item(), 7, {abs = 0})
  t.same(#others, 20)
end)

t.finish()
