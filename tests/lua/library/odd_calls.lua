-- Calls at the edges return what PyTorch returned (tests/golden/make_odd_calls.py), with the same
-- dtype and shape: values within 2e-6 of their size, or 1e-7.

local nn = require "nn"
local t = require "nn.test"
local json = require "nn.io.json"
local root = package.loaded["nn.host"].root

local numbers = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

local names = {
  nn = nn, T = nn.tensor, nan = 0 / 0, inf = math.huge,
  I = function(values, dtype) return nn.tensor(values, {dtype = dtype or "i64"}) end,
  G = function(f, x)
    x.requires_grad = true
    f(x):sum():backward()
    return x.grad
  end,
}

local function is_near(got, expected)
  if got ~= got or expected ~= expected then return got ~= got and expected ~= expected end
  if got == expected then return true end
  return math.abs(got - expected) <= math.max(1e-7, 2e-6 * math.abs(expected))
end

for _, case in ipairs(json.read(root .. "/tests/golden/odd_calls.json")) do
  t.case(case.call .. " is PyTorch's", function()
    local y = setfenv(assert(loadstring("return " .. case.call)), names)()
    t.same(y.shape, case.shape)
    t.same(y.dtype, case.dtype)
    local got, n = y:numbers()
    for i = 1, n do
      local expected = numbers[case.values[i]] or case.values[i]
      t.check(is_near(got[i - 1], expected),
              ("element %d is %.9g, PyTorch's %.9g"):format(i, got[i - 1], expected))
    end
  end)
end

t.finish()
