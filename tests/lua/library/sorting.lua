-- Sorts, order statistics, scans, softmax over any axis and indexing against PyTorch's values,
-- positions, dtypes, shapes and gradients (tests/golden/make_sorting.py), whole and cut into random
-- tiles, eager and compiled.

local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local random = require("samples").random(5)

local golden = nn.load_safetensors(package.loaded["nn.host"].root
                                   .. "/tests/golden/sorting.safetensors")

local function same(got, expected, what, tolerance)
  t.same(got.dtype, expected.dtype, what .. ": dtype")
  t.same(got.shape, expected.shape, what .. ": shape")
  local a, n = got:numbers()
  local b = expected:numbers()
  for i = 0, n - 1 do
    local equal = a[i] == b[i] or (a[i] ~= a[i] and b[i] ~= b[i])
    local within = math.abs(a[i] - b[i]) <= (tolerance or 0) * (1 + math.abs(b[i]))
    if not (equal or within) then
      error(("%s: element %d is %.9g, PyTorch has %.9g"):format(what, i + 1, a[i], b[i]), 0)
    end
  end
end

local function cut(x)
  local sizes = {}
  for axis, size in ipairs(x.shape) do sizes[axis] = random(0, size) end
  return x:retile(sizes)
end

local x, ints, distinct = golden["sort/x"], golden["sort/ints"], golden["sort/distinct"]

local sorts = {
  sort = {x, function(a) return a:sort() end},
  sort_descending = {x, function(a) return a:sort {descending = true} end},
  sort_axis1 = {x, function(a) return a:sort(1) end},
  sort_ints = {ints, function(a) return a:sort() end},
  sort_bool = {ints:gt(0), function(a) return a:sort() end},
  topk = {distinct, function(a) return a:topk(3) end},
  topk_smallest = {distinct, function(a) return a:topk(2, 2, false) end},
  kthvalue = {distinct, function(a) return a:kthvalue(2, 2) end},
  kthvalue_keepdim = {distinct, function(a) return a:kthvalue(6, -1, true) end},
  median_axis2 = {distinct, function(a) return a:median(2) end},
  median_keepdim = {distinct, function(a) return a:median {axis = -1, keepdim = true} end},
}

t.case("sorts and order statistics give PyTorch's values and positions, for any tiling", function()
  for name, case in pairs(sorts) do
    for _, input in ipairs {case[1], cut(case[1]), cut(case[1])} do
      local values, indices = case[2](input)
      same(values, golden[name .. "/values"], name)
      same(indices, golden[name .. "/indices"], name .. ", positions")
    end
    local values, indices = nn.compile(case[2])(case[1])
    same(values, golden[name .. "/values"], name .. ", compiled")
    same(indices, golden[name .. "/indices"], name .. ", compiled positions")
  end
  same(x:argsort {axis = 2, descending = true}, golden["argsort/y"], "argsort")
  same(x[4]:median(), golden["median/y"], "median")
  same(cut(distinct):median(), golden["median_nan/y"], "median with NaN")
  same(ints:median(), golden["median_ints/y"], "median of integers")
end)

local differentiable = {
  softmax_axis2 = function(a) return a:softmax(2) end,
  log_softmax_axis1 = function(a) return a:log_softmax(1) end,
  logsumexp_axis1 = function(a) return a:logsumexp(1) end,
  logsumexp_keepdim = function(a) return a:logsumexp(2, true) end,
  softmin = function(a) return a:softmin(1) end,
  cumsum = function(a) return a:cumsum(2) end,
  cumprod = function(a) return a:cumprod(2) end,
  cumprod_axis1 = function(a) return a:cumprod(1) end,
  sort_gradient = function(a) return (a:sort(1, true)) end,
  median_gradient = function(a) return (a:median()) end,
}

t.case("scans and softmax over any axis, and their gradients, equal PyTorch's", function()
  for name, f in pairs(differentiable) do
    for trial = 1, 2 do
      local leaf = trial == 1 and golden[name .. "/x"] or cut(golden[name .. "/x"])
      leaf = leaf:detach()
      leaf.requires_grad = true
      local y = f(leaf)
      same(y, golden[name .. "/y"], name, 1e-6);
      (y * golden[name .. "/dy"]):sum():backward()
      same(leaf.grad, golden[name .. "/dx"], name .. ", gradient", 2e-6)
    end
  end
end)

t.case("gather, scatter, index_* and masks give PyTorch's results, for any tiling", function()
  local function input(name) return golden["index/" .. name] end
  for trial = 1, 2 do
    local a, unique, src = input "x", input "unique", input "src"
    if trial == 2 then a, unique, src = cut(a), cut(unique), cut(src) end
    local index, picked = input "index", src:slice(2, 1, 3)
    local once = index:slice(1, 1, 2)
    local results = {
      gather = a:gather(2, unique), scatter = a:scatter(2, unique, picked),
      scatter_number = a:scatter(2, unique, 0.25),
      scatter_add = a:scatter_add(2, unique, picked), index_select = a:index_select(2, index),
      index_add = a:index_add(2, index, src),
      index_copy = a:index_copy(2, once, src:slice(2, 1, 2)),
      index_fill = a:index_fill(2, index, 7), masked_select = a:masked_select(input "mask"),
      masked_select_broadcast = a:masked_select(input "mask"[1][1]),
      nonzero = input "mask":nonzero(), at_mask = a[input "mask"], at_rows = a[input "rows"],
      at_places = a[input "places"],
      searchsorted = nn.searchsorted(cut(input "ladder"), cut(input "values")),
      searchsorted_right = nn.searchsorted(input "ladder", input "values", {right = true}),
      searchsorted_row = nn.searchsorted(input "ladder"[2], input "values"),
      cumsum_ints = index:to("i32"):cumsum(1), cumprod_bool = input "rows":cumprod(1),
    }
    for name, y in pairs(results) do same(y, golden[name .. "/y"], name, 1e-6) end
  end
end)

t.case("booleans that are added at the same place are counted", function()
  local yes = nn.ones(3):gt(0)
  local counts = nn.scatter_add(yes, nn.tensor({1, 1, 0}, {dtype = "i32"}), {size = 2})
  t.same(counts.dtype, "i64")
  t.same(counts, {1, 2})
end)

t.case("lists of positions count from 1, tensors of positions from 0", function()
  local y = nn.tensor {{1, 2, 3}, {4, 5, 6}}
  t.same(y[{2, -2}], {{4, 5, 6}, {1, 2, 3}})
  t.same(nn.compile(function(a) return a[{2, -2}] end)(y), {{4, 5, 6}, {1, 2, 3}})
  t.same(y:index_select(2, {3, 1}), y:index_select(2, nn.tensor({2, 0}, {dtype = "i32"})))
  t.fails(function() y:index_select(2, {0}) end, "position 1 is 0; lists hold 1 to 3, or -1 to -3")
  t.fails(function() y:index_select(2, {1, 4}) end, "index_select: position 2 is 4; lists hold 1")
  t.fails(function() return y[{}] end, "index_select: the list of positions is empty")
  t.fails(function() y:index_select(3, {1}) end, "index_select: there is no axis 3; axes are 1 to")
  t.fails(function() return y[nn.tensor {true, false, true}] end,
          "index: the mask is (3), x is (2,3); it needs x's shape or that of x's first axes")
  t.fails(function() y:masked_select(y) end, "the mask is f32; a tensor of booleans is needed")
  t.fails(function() y:masked_select(y:gt(9)) end, "masked_select: no element is selected, and no")
  t.fails(function() y:masked_select(nn.ones(2):gt(0)) end,
          "masked_select: the mask is (2), which does not broadcast to x, (2,3)")
  t.fails(function() y:index_add(2, {1}, nn.ones(2, 3)) end,
          "index_add: the source is (2,3) where (2,1) is needed")
  t.fails(function() nn.tensor(1):sort(2) end, "sort: axis is 2; a tensor of 1 axes has axes 1 to")
  t.fails(function() y:topk(4) end, "topk: k is 4; axis 2 of x (2,3) has 3 elements")
  t.fails(function() y[y:gt(2)] = 0 end, "x:masked_fill(mask, value), nn.where(mask, y, x)")
  t.fails(function() y:scatter(nn.tensor({{0}, {1}}, {dtype = "i64"}), nn.ones(2, 2)) end,
          "scatter: src is (2,2) where (2,1) is needed")
  t.fails(function() y:gt(2):scatter(nn.tensor({{0}, {1}}, {dtype = "i64"}), true) end,
          "scatter: src is a boolean; a tensor or a number is needed")
end)

t.case("results whose size depends on values are refused in a compiled function", function()
  for _, f in ipairs {function(a) return a:nonzero() end, function(a) return a[a:gt(0)] end,
                      function(a) return a:masked_select(a:gt(0)) end} do
    t.fails(function() nn.compile(f)(nn.ones(3)) end,
            "the shape of its result depends on values, which a compiled function does not read")
  end
end)

t.case("the gradient of a selection reaches the selected elements", function()
  local leaf = nn.tensor({{1, 2, 3}, {4, 5, 6}}, {grad = true})
  local loss = leaf[leaf:detach():gt(4)]:sum() + leaf[{2, 2}]:sum() * 10
  loss = loss + leaf:index_add(2, {1}, leaf:slice(2, 3, 3)):sum() * 100
  loss:backward()
  t.same(leaf.grad, {{100, 100, 200}, {120, 121, 221}})
end)

t.case("multinomial draws by weight, the same for any tiling, other numbers in each run", function()
  local weights = nn.tensor {{0, 1, 2, 5}, {4, 0, 4, 0}}
  local function shares(drawn)
    local out = {}
    for k = 0, 3 do out[k + 1] = (drawn:eq(k):to("f64"):mean(-1)):table() end
    return out
  end
  nn.seed(3)
  local many = weights:multinomial(20000, true)
  local expected = {{0, 0.5}, {0.125, 0}, {0.25, 0.5}, {0.625, 0}}
  t.near(shares(many), expected, {abs = 0.015})   -- 4 standard deviations
  nn.seed(3)
  t.same(weights:retile {1, 2}:multinomial(20000, true):ne(many):sum():item(), 0)
  local one = nn.ones(20000, 4):mul(weights[1]):multinomial(1):reshape(1, -1)
  t.near(shares(one), {{0}, {0.125}, {0.25}, {0.625}}, {abs = 0.015})
  local pairs_drawn = nn.ones(4000, 4):mul(weights[2]):multinomial(2):sort()
  t.same(pairs_drawn:ne(nn.tensor({0, 2}, {dtype = "i64"})):sum():item(), 0)
  local draw = nn.compile(function(w) return w:multinomial(50, {replacement = true}) end)
  nn.seed(1)
  local first, second = draw(weights):clone(), draw(weights)
  t.check(first:ne(second):sum():item() > 20, "two runs draw other numbers")
  nn.seed(1)
  t.same(draw(weights):ne(first):sum():item(), 0)
  t.fails(function() weights:multinomial(3) end, "3 draws without replacement from 2 positive")
  t.fails(function() nn.tensor {1, -1}:multinomial(1) end, "needs finite weights of at least 0")
  t.fails(function() nn.tensor {0, 0}:multinomial(1) end, "that are not all 0")
  t.fails(function() nn.tensor({1}, {dtype = "i32"}):multinomial(1) end, "x is i32 (1); a float")
end)

t.finish()
