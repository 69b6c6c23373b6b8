-- Tensors are values: views behave like copies, and dtypes hold the values they are given.
local nn = require "nn"
local t = require "nn.test"

t.case("an op without work returns a view, which detects a change of its source", function()
  for _, f in ipairs {
    function(x) return x:to "f32" end, function(x) return x:reshape(2, 3) end,
    function(x) return x:expand {2, 3} end,
  } do
    local x = nn.ones(2, 3)
    local y = f(x)
    t.same(y:table(), {{1, 1, 1}, {1, 1, 1}})
    t.fails(function() y:fill_(2) end, "is a view")
    x:fill_(5)
    t.fails(function() return y:table() end, "changed in place since")
    t.same(f(x):table(), {{5, 5, 5}, {5, 5, 5}})
  end
end)

t.case("a view of more than eight axes is refused like any other tensor", function()
  t.fails(function() return nn.zeros(1):reshape(1, 1, 1, 1, 1, 1, 1, 1, 1) end,
          "has 9 axes; at most 8 are possible")
end)

t.case("a reshape whose tiles do not fit the new shape is a copy", function()
  local n = 5592407
  local x = nn.arange(3 * n, {dtype = "i64"})
  t.same(x:reshape(n, 3):at(n, 3), 3 * n - 1)
end)

t.case("arithmetic counts booleans, and comparisons return them", function()
  local mask = nn.tensor({1, 2, 3}):gt(1.5)
  local signs = mask * 2 - 1
  t.same({signs.dtype, signs:table()}, {"i64", {-1, 1, 1}})
  t.same((mask + mask):table(), {0, 2, 2})
  t.same(nn.maximum(mask, mask).dtype, "bool")
end)

t.case("a number that a dtype cannot hold is refused", function()
  t.fails(function() return nn.full({1}, 3e9, {dtype = "i32"}) end, "dtype i32 cannot hold 3e+09")
  t.fails(function() return nn.full({1}, 256, {dtype = "u8"}) end, "dtype u8 cannot hold 256")
  t.fails(function() return nn.full({1}, 1.5, {dtype = "i64"}) end, "dtype i64 cannot hold 1.5")
  t.fails(function() return nn.tensor({1, 1.5}, {dtype = "i32"}) end, "number 2 is 1.5")
  t.fails(function() return nn.tensor({300}, {dtype = "u8"}) end, "number 1 is 300")
end)

t.case("adding a slice of a tensor to it in place reads the old values", function()
  local x = nn.tensor {{1, 2}, {3, 4}, {5, 6}}
  x:add_(x:slice(1, 1, 1))
  t.same(x:table(), {{2, 4}, {4, 6}, {6, 8}})
  x:add_(x)
  t.same(x:table(), {{4, 8}, {8, 12}, {12, 16}})
end)

t.case("a dropout mask with a given seed is the same eager and compiled, in every run", function()
  local x = nn.ones(64)
  local function drop(y) return (y:dropout(0.5, {counter = 5, seed = 42})) end
  local expected, f = drop(x):table(), nn.compile(drop)
  for _ = 1, 3 do t.same(f(x):table(), expected) end
end)

t.case("targets must have the shape of the logits without the last axis", function()
  local logits, targets = nn.randn(2, 3, 7), nn.zeros(3, 2, {dtype = "i32"})
  t.fails(function() return nn.cross_entropy(logits, targets) end,
          "targets are (3,2); for (2,3,7) they must be (2,3)")
end)

t.case("clipping without a norm is refused", function()
  local p, g = nn.ones(3), nn.ones(3)
  t.fails(function() require("nn.core.op").call("sgd_", p, g, {lr = 1, clip = 1}) end,
          "clip and skip_nonfinite need norm")
end)

t.finish()
