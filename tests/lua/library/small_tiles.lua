-- Parameters in small tiles: an ordinary op and a fused layer add to the same gradient, in either
-- order and over several backward passes. Expected: the gradients of the same parameters in one
-- tile each, in f64, within 1e-12.

local nn = require "nn"
local t = require "nn.test"

local ids = nn.tensor({{0, 3, 3}, {4, 1, 0}}, {dtype = "i32"})
local targets = nn.tensor({{1, 0, 2}, {4, 4, 3}}, {dtype = "i64"})

local function numbers(...) return nn.randn(..., {dtype = "f64"}) end

-- Each: shapes of parameters, with the sizes of their tiles, and a function of them and x.
local cases = {
  layernorm = {{{6}, {2}}, {{6}, {4}}, f = function(x, w, b)
    return (nn.layernorm(x:reshape(4, 6), w, b))
  end},
  ["layernorm, of which the bias is cut"] = {{{6}, {6}}, {{6}, {4}}, f = function(x, w, b)
    return (nn.layernorm(x:reshape(4, 6), w, b))
  end},
  rmsnorm = {{{6}, {4}}, f = function(x, w) return (nn.rmsnorm(x:reshape(4, 6), w)) end},
  linear = {{{5, 6}, {2, 3}}, {{5}, {2}}, f = function(x, w, b)
    return (nn.linear(x:reshape(4, 6), w, b))
  end},
  ["linear with gelu"] = {{{5, 6}, {2, 3}}, {{5}, {2}}, f = function(x, w, b)
    return (nn.linear(x:reshape(4, 6), w, b, {gelu = true}))
  end},
  embedding = {{{5, 6}, {2, 3}}, {{4, 6}, {3, 2}}, f = function(_, tokens, positions)
    return (nn.embedding(ids, tokens, positions))
  end},
  ["embedding, cut along its rows"] = {{{5, 6}, {2, 6}}, {{4, 6}, {3, 6}}, f = function(_, a, b)
    return (nn.embedding(ids, a, b))
  end},
  conv2d = {{{2, 1, 2, 3}, {1, 1, 2, 2}}, {{2}, {1}}, f = function(x, w, b)
    return nn.conv2d(x:reshape(1, 1, 4, 6), w, b)
  end},
  ["conv2d, of which the bias is cut"] = {{{2, 1, 2, 3}, {2, 1, 2, 3}}, {{2}, {1}},
                                          f = function(x, w, b)
    return nn.conv2d(x:reshape(1, 1, 4, 6), w, b)
  end},
  linear_cross_entropy = {{{5, 6}, {2, 3}}, f = function(x, w)
    return (nn.linear_cross_entropy(x:reshape(2, 3, -1):slice(3, 1, 4):pad {0, 2}, w, targets))
  end},
  cross_attention = {{{1, 4, 4}, {1, 3, 2}}, {{1, 4, 8}, {1, 2, 4}}, f = function(_, q, kv)
    return (nn.cross_attention(q, kv, {heads = 2}))
  end},
}

-- Losses of the parameters: by ordinary ops, and by the layer. The gradient of a slice is cut like
-- the parameter.
local function losses(case, x, parameters)
  local function ordinary()
    local sum = 0
    for _, p in ipairs(parameters) do
      sum = sum + (p * p:detach():sin()):sum() + p:slice(1, 1, 1):square():sum()
    end
    return sum
  end
  return ordinary, function() return case.f(x, unpack(parameters)):square():sum() end
end

-- The gradients after a backward pass of each of these losses, by their numbers.
local function gradients(case, x, values, cut, order)
  local parameters = {}
  for i, value in ipairs(values) do
    parameters[i] = cut and value:retile(case[i][2]) or value:clone()
    parameters[i].requires_grad = true
  end
  local both = {losses(case, x, parameters)}
  for _, number in ipairs(order) do both[number]():backward() end
  local out = {}
  for i, p in ipairs(parameters) do out[i] = p.grad end
  return out
end

local names = {}
for name in pairs(cases) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  t.case(name .. ": an ordinary op and the layer add to gradients in small tiles", function()
    nn.seed(5)
    local case, values, x = cases[name], {}, numbers {24}
    for i, of in ipairs(case) do values[i] = numbers(of[1]) end
    for _, order in ipairs {{1, 2}, {2, 1}, {2, 2}, {1, 2, 2, 1, 2}, {2, 1, 1, 2}} do
      local expected = gradients(case, x, values, false, order)
      for how, got in pairs {
        eager = gradients(case, x, values, true, order),
        compiled = {nn.compile(function()
          return unpack(gradients(case, x, values, true, order))
        end)()},
      } do
        for i = 1, #values do
          t.near(got[i]:table(), expected[i]:table(), {abs = 1e-12, rel = 1e-12},
                 ("%s, order %s, parameter %d"):format(how, table.concat(order), i))
        end
      end
    end
  end)
end

t.finish()
