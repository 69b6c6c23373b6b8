-- Functions composed of ops: their gradients at the edges, their random numbers, what they refuse.
local nn = require "nn"
local t = require "nn.test"

local x = nn.tensor {{1, 2, 3}, {4, 5, 6}}

t.case("distances, norms and deviations have gradient 0 where they are 0", function()
  for _, f in ipairs {
    function(w) return w:norm() end, function(w) return w:norm(3) end,
    function(w) return w:std() end, function(w) return nn.cdist(w, w):sum() end,
    function(w) return nn.normalize(w):sum() * 0 end,
    function(w) return nn.binary_cross_entropy(w, nn.ones(2, 3)) end,
  } do
    local w = nn.zeros(2, 3, {grad = true})
    f(w):backward()
    t.same(w.grad:table(), {{0, 0, 0}, {0, 0, 0}})
  end
end)

t.case("sums of products over any axes have the gradient of finite differences", function()
  local function values(...) return nn.uniform({...}, {low = -1, high = 1, dtype = "f64"}) end
  t.gradcheck(function(a, b, c) return nn.einsum("bij,jk,b->ki", a, b, c):square():sum() end,
              {values(2, 3, 4), values(4, 2), values(2)})
  t.gradcheck(function(a, b) return nn.einsum("...ii,i...->...", a, b):square():sum() end,
              {values(2, 3, 3), values(3, 2)})
  t.gradcheck(function(a, b) return nn.tensordot(a, b, {{3, 1}, {1, 2}}):square():sum() end,
              {values(2, 3, 4), values(4, 2)})
  t.gradcheck(function(a) return a:pad({2, 1}, {mode = "reflect"}):roll(2, 2):flip(1):square():sum()
              end, {values(3, 4)})
end)

t.case("shapes and sums do not depend on the tiling, eager or compiled", function()
  local function f(a)
    local first, second = a:chunk(2, 2)
    return nn.einsum("ij,ik->jk", first, second):sum() + a:roll(1):triu():var()
      + a:flip {1, 2}:pad({1, 1}, {mode = "circular"}):tile(2, 1):norm(1)
  end
  local a = nn.arange(60):reshape(6, 10)
  local expected = f(a):item()
  t.near(f(a:retile {4, 3}):item(), expected, {rel = 1e-6})
  t.same(nn.compile(f)(a):item(), expected)
end)

t.case("random whole numbers fill their range and follow the seed", function()
  nn.seed(3)
  local y = nn.randint(-2, 3, {1000})
  t.same({y.dtype, y:min():item(), y:max():item()}, {"i64", -2, 2})
  for value = -2, 2 do
    t.near(y:eq(value):sum():item(), 200, {abs = 45})   -- 3.5 standard deviations
  end
  nn.seed(3)
  t.check(nn.randint(-2, 3, {1000}):eq(y):all():item(), "another result")
  local large = nn.randint(2 ^ 40, {2000})
  t.check(large:lt(2 ^ 40):all():item() and large:remainder(2):sum():item() > 800, "few bits")
  local order = nn.randperm(5000)
  t.same(order:sort():eq(nn.arange(5000, {dtype = "i64"})):all():item(), true)
  t.check(not order:slice(1, 1, 20):eq(nn.arange(20)):all():item(), "not shuffled")
  t.near(nn.bernoulli(nn.full({1000}, 0.3)):mean():item(), 0.3, {abs = 0.05})
end)

t.case("wrong sizes, axes and options are refused in these words", function()
  for text, f in pairs {
    ["split: the sizes add up to 4, the axis has 3"] = function() x:split({2, 2}, 2) end,
    ["split: the size of a piece is 0; a whole number"] = function() x:split(0) end,
    ["chunk: the number of parts is nil"] = function() x:chunk() end,
    ["flip: there is no axis nil"] = function() x:flip() end,
    ["flip: the tensor has no axes"] = function() nn.tensor(1):flip(1) end,
    ["mse: has no option 'reduction'"] = function() nn.mse(x, x, {reduction = "sum"}) end,
    ["zeros_like: has no option 'dtpe'; did you mean 'dtype'"] = function()
      nn.zeros_like(x, {dtpe = "i64"})
    end,
    ["flip: axis 2 is given twice"] = function() x:flip {2, -1} end,
    ["roll: 1 shifts are given for 2 axes"] = function() x:roll(1, {1, 2}) end,
    ["tile: a count is 0; a whole number"] = function() x:tile(2, 0) end,
    ["pad: 3 widths are given for (2,3); two an axis"] = function() x:pad {1, 1, 1} end,
    ["pad: mode is 'mirror'; one of constant, reflect"] = function()
      x:pad({1, 1}, {mode = "mirror"})
    end,
    ["pad: mode 'reflect' adds at most 2 elements to axis 2 of (2,3), not 3"] = function()
      x:pad({3, 0}, {mode = "reflect"})
    end,
    ["diag: (2,3) has no diagonal 3"] = function() x:diag(3) end,
    ["trace: x is (3); two axes are needed"] = function() x[1]:trace() end,
    ["clamp: min is nil; give min, max or both"] = function() x:clamp() end,
    ["norm: p is 'fro'; a number is needed"] = function() x:norm "fro" end,
    ["std: has no option 'unbiased'; use correction"] = function() x:std(1, {unbiased = true}) end,
    ["einsum: 'ijk' names 3 axes; tensor 1 is (2,3)"] = function() nn.einsum("ijk->i", x) end,
    ["einsum: axis 'j' has size 3 and size 2"] = function() nn.einsum("ij,jk", x, x) end,
    ["names axis 'z' that no tensor has"] = function() nn.einsum("ij->z", x) end,
    ['einsum: "ij" names 1 tensors, 2 are given'] = function() nn.einsum("ij", x, x) end,
    ["einsum: '&' in \"i&->i\" has no meaning"] = function() nn.einsum("i&->i", x) end,
    ["tensordot: 1 axes of a and 2 of b are given"] = function()
      nn.tensordot(x, x, {{1}, {1, 2}})
    end,
    ["mse_loss: the input is (2,3), the target is (3); the shapes must be equal"] = function()
      nn.mse_loss(x, x[1])
    end,
    ["l1_loss: reduction is 'avg'; \"mean\", \"sum\" or \"none\""] = function()
      nn.l1_loss(x, x, {reduction = "avg"})
    end,
    ["randint: high is 2; a whole number of at least 3"] = function() nn.randint(2, 2, {3}) end,
    ["randint: the shape is nil; a list of sizes"] = function() nn.randint(2, 5) end,
    ["one_hot: the number of classes is nil"] = function() nn.one_hot(x:to "i32") end,
    ["one_hot: the dtype of the ids is f32; i32 or i64 is needed"] = function()
      nn.one_hot(x, 3)
    end,
    ["nll_loss: the targets are (2,3) where (2) is needed; log_probs is (2,3)"] = function()
      nn.nll_loss(x, x:to "i64")
    end,
    ["no method 'one_hot'; use nn.one_hot(ids, classes)"] = function() x:one_hot(3) end,
    ["flip: x is 3; a tensor is needed"] = function() nn.flip(3, 1) end,
    ["no method 'clamp_'; use x = x:clamp(...)"] = function() x:clamp_(0, 1) end,
    ["nn has no 'dims'; use x:dims(...)"] = function() nn.dims(x) end,
  } do
    t.fails(f, text)
  end
end)

t.case("a loss of values that are no probabilities is NaN", function()
  local y = nn.tensor{1, 0}
  for _, p in ipairs {nn.tensor{2, 0.5}, nn.tensor{0.5, -1}} do
    t.same(nn.binary_cross_entropy(p, y):isnan():item(), true)
  end
  t.same(nn.kl_div(y, nn.tensor{-0.5, 1.5}):isnan():item(), true)
end)

t.finish()
