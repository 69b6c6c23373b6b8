-- Tensors as scripts use them: literals, operators, indexing, views, dtypes, errors, printing; and
-- single tasks.

local nn = require "nn"
local t = require "nn.test"

local x = nn.tensor {{1, 2, 3}, {4, 5, 6}}

t.case("literals, shapes and values", function()
  t.near({x:dims()}, {2, 3}, {abs = 0})
  t.near(x:table(), {{1, 2, 3}, {4, 5, 6}}, {abs = 0})
  t.near(nn.tensor(7):item(), 7, {abs = 0})
  assert(nn.tensor({true, false}).dtype == "bool" and nn.tensor({true, false}):at(1) == true)
  t.fails(function() nn.tensor {{1, 2}, {3}} end, "tensor: rows of 2 and of 1 elements")
  t.fails(function() nn.tensor {1, "a"} end, "element 2 is 'a'")
end)

t.case("operators are elementwise and broadcast", function()
  t.near((x + 1):table(), {{2, 3, 4}, {5, 6, 7}}, {abs = 0})
  t.near((2 - x):table(), {{1, 0, -1}, {-2, -3, -4}}, {abs = 0})
  t.near((x * nn.tensor {{10}, {100}}):table(), {{10, 20, 30}, {400, 500, 600}}, {abs = 0})
  t.near((x / 2 ^ nn.tensor {1, 2, 3}):table(), {{0.5, 0.5, 0.375}, {2, 1.25, 0.75}}, {abs = 0})
  t.near((-x % 4):table(), {{3, 2, 1}, {0, 3, 2}}, {abs = 0})
  t.near(x:gt(3):to("i32"):table(), {{0, 0, 0}, {1, 1, 1}}, {abs = 0})
end)

t.case("dtypes are promoted as in PyTorch, integers to floats", function()
  local i = nn.tensor({1, 2}, {dtype = "i32"})
  assert((i + 1).dtype == "i32" and (i + 0.5).dtype == "f32" and (i / 2).dtype == "f32")
  assert((i + nn.tensor({1, 2}, {dtype = "f64"})).dtype == "f64")
  assert(i:sum().dtype == "i64" and i:eq(1).dtype == "bool")
end)

t.case("indexing counts from 1, and from the end with negative numbers", function()
  t.near(x[2]:table(), {4, 5, 6}, {abs = 0})
  t.near(x:at(-1, -1), 6, {abs = 0})
  t.near(x:slice(2, 2, 3):table(), {{2, 3}, {5, 6}}, {abs = 0})
  t.fails(function() return x:slice(2, 3, 4) end, "elements 3 to 4 are not in an axis of size 3")
  t.fails(function() return x:sum(3) end, "a tensor of 2 axes has axes 1 to 2")
end)

t.case("views: reshape, transpose, split, cat, stack, squeeze", function()
  t.near(x:reshape(3, 2):table(), {{1, 2}, {3, 4}, {5, 6}}, {abs = 0})
  t.near(x:t():table(), {{1, 4}, {2, 5}, {3, 6}}, {abs = 0})
  local a, b, c = x:split(1, 2)
  t.near(nn.cat({a, b, c}, 2):table(), x:table(), {abs = 0})
  t.near(nn.stack {x[1], x[2]}:table(), x:table(), {abs = 0})
  t.near(#x:unsqueeze(1).shape, 3, {abs = 0})
  t.near(x:unsqueeze(-1):squeeze(-1).shape, {2, 3}, {abs = 0})
  t.fails(function() return x:reshape(4, 2) end, "x of shape (2,3) (6 elements) cannot")
end)

t.case("a view of a tensor that changed in place is refused, a clone is not", function()
  local w = nn.ones(4, 4)
  local view, copy = w:reshape(16), w:clone()
  w:fill_(2)
  t.fails(function() return view:sum() end,
          "changed in place since; take the view again, or clone()")
  t.near(copy:sum():item(), 16, {abs = 0})
  t.near(w:reshape(16):sum():item(), 32, {abs = 0})
end)

t.case("no slice is changed in place, whether it shares tiles or is a copy", function()
  for _, w in ipairs {nn.ones(4, 4), nn.ones(4, 4):retile {2, 4}} do
    for _, f in ipairs {function() w:slice(1, 1, 2):fill_(5) end, function() w[1]:fill_(5) end} do
      t.fails(f, "fill_: x is a view; an op that changes it in place needs the tensor itself")
    end
    t.same(w:slice(1, 1, 2):clone():fill_(5):sum():item(), 40)
  end
end)

t.case("masks, where, gather and argmax", function()
  t.near(x:masked_fill(x:gt(4), 0):table(), {{1, 2, 3}, {4, 0, 0}}, {abs = 0})
  t.near(x:argmax(1):table(), {1, 1, 1}, {abs = 0})   -- 0-based: it is data
  local index = nn.tensor({{2}, {0}}, {dtype = "i64"})
  t.near(x:gather(index):table(), {{3}, {4}}, {abs = 0})
  t.fails(function()
    x:gather(nn.tensor({{3}, {0}}, {dtype = "i64"})):host()
    nn.sync()
  end, "index 3 is outside [0,3)")
end)

t.case("shape and dtype errors name the op, the argument and what to do", function()
  t.fails(function() return x:matmul(nn.zeros(4, 5)) end,
          "matmul: x is (2,3), w is (4,5); the inner sizes 3 and 4 differ")
  t.fails(function() return x + nn.zeros(4) end,
          "add: shapes (2,3) and (4) do not broadcast")
  t.fails(function() return x:to("i32"):softmax() end,
          "softmax: x is i32; a float dtype (f32, f64, bf16) is needed")
  t.fails(function() return x:matmul(nn.zeros(3, 2, {dtype = "f64"})) end,
          "matmul: w is f64 where f32 is needed")
  t.fails(function() return nn.zeros(0, 3) end,
          "zeros: size 1 is 0; a whole number of at least 1 is needed")
  t.fails(function() return nn.zeros({0}) end, "every size must be at least 1")
  t.fails(function() return x:softmaxx() end, "did you mean 'softmax'?")
  t.fails(function() return x:sum {axs = 1} end, "sum: has no option 'axs'; did you mean 'axis'?")
  t.fails(function() return nn.full({2}, 1, {dtype = "f16"}) end, "unknown dtype 'f16'")
end)

t.case("backward needs one element and a tensor that requires a gradient", function()
  t.fails(function() x:backward() end, "only a loss of one element has a gradient")
  t.fails(function() x:sum():backward() end, "does not depend on anything that needs a gradient")
  local w = nn.tensor({1, 2}, {grad = true})
  local loss = (w * w):sum()
  loss:backward()
  t.near(w.grad:table(), {2, 4}, {abs = 0})
  t.fails(function() loss:backward() end, "the tape of this loss was already used")
  t.fails(function() w:fill_(0) end, "or do it inside nn.no_grad")
end)

t.case("nn.grad returns value and gradients of a function, in tables of the same shape", function()
  local function loss(p, input) return nn.mse(input:matmul(p.w) + p.b, nn.ones(2, 1)) end
  local value, g = nn.grad(loss)({w = nn.zeros(3, 1), b = nn.zeros(1)}, x)
  t.near(value:item(), 1, {abs = 0})
  t.near(g.w:table(), {{-5}, {-7}, {-9}}, {abs = 1e-6})
  t.near(g.b:table(), {-2}, {abs = 1e-6})
end)

t.case("the gradient of a product is the product of the others, with zeros too", function()
  local values = {{0, 2, 3}, {0, 0, 4}, {1, 2, 4}}
  local function gradient(...)
    local w = nn.tensor(values, {grad = true})
    w:prod(...):sum():backward()
    return w.grad
  end
  t.same(gradient(2), {{6, 0, 0}, {0, 0, 0}, {8, 4, 2}})
  t.same(gradient {axis = {-2}, keepdim = true}, {{0, 0, 16}, {0, 4, 12}, {0, 0, 12}})
  t.same(gradient(), {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}})
end)

t.case("a leaf that is used twice gets both gradients, though they are one tensor", function()
  local f = nn.grad(function(v) return ((v + v) * nn.tensor {3, 4}):sum() end)
  t.same({f(nn.tensor {1, 2})}, {22, {6, 8}})
end)

t.case("backward with retain gives the same gradient again, and adds it", function()
  local w = nn.tensor({{1, 2}, {3, 4}, {-1, 0}}, {grad = true})
  local loss = nn.linear_cross_entropy(nn.ones(2, 2), w, nn.tensor({0, 2}, {dtype = "i32"}))
  loss:backward {retain = true}
  local once = w.grad:clone()
  loss:backward {retain = true}
  loss:backward()
  t.near(w.grad:table(), (once * 3):table(), {rel = 1e-6})
end)

t.case("squeeze drops one axis of size 1 or all, and unknown axes are errors", function()
  t.same(nn.zeros(1, 3, 1):squeeze().shape, {3})
  t.same(nn.zeros(1, 3, 1):squeeze(1).shape, {3, 1})
  t.same({x:unsqueeze(3).shape, x:unsqueeze(-3).shape}, {{2, 3, 1}, {1, 2, 3}})
  t.fails(function() x:squeeze(1) end, "squeeze: axis 1 has size 2, not 1")
  for _, axis in ipairs {0, 4, -4, 1.5} do
    local message = "unsqueeze: there is no axis %g; axes are 1 to 3, or -1 to -3 from the end"
    t.fails(function() x:unsqueeze(axis) end, message:format(axis))
  end
end)

t.case("a custom function has the given gradient, eager and compiled", function()
  local calls = 0
  local cube = nn.custom {
    name = "cube",
    forward = function(a, scale)
      assert(not nn.grad_enabled())
      local y = a * a * a * scale
      return y, a, scale, y
    end,
    backward = function(g, a, scale, y)
      calls = calls + 1
      assert(y.node == nil and y.shape[1] == a.shape[1])
      return g * a * a * (3 * scale)
    end,
  }
  local function loss(a) return (cube(a * 2, 0.5):sin() + cube(a, 1)):sum() end
  local a = nn.tensor({0.3, -0.7, 1.1}, {dtype = "f64", grad = true})
  loss(a):backward()
  t.same(calls, 2)
  for i = 1, 3 do
    local step = nn.tensor({i == 1 and 1 or 0, i == 2 and 1 or 0, i == 3 and 1 or 0}) * 1e-6
    local slope = nn.no_grad(function() return (loss(a + step) - loss(a - step)):item() end) / 2e-6
    t.near(a.grad:at(i), slope, {rel = 1e-7, abs = 1e-8})    -- central differences in f64
  end
  local compiled = nn.compile(function(w)
    local leaf = w:detach()
    leaf.requires_grad = true
    loss(leaf):backward()
    return leaf.grad
  end)
  t.same(compiled(a), a.grad)
end)

t.case("a custom function may return its argument; invalid gradients are refused", function()
  local function custom(backward)
    local w = nn.tensor({3, -4}, {grad = true})
    local f = nn.custom {forward = function(v) return v end, backward = backward}
    f(w):sum():backward()
    return w.grad, w.node
  end
  t.same(custom(function(g) return g * 7 end), {7, 7})
  t.same({custom(function() end)}, {})                     -- nil: no gradient
  t.fails(function() custom(function() return 3 end) end, "custom: gradient 1 is 3; a tensor or")
  t.fails(function() custom(function(g) return g:reshape(2, 1) end) end,
          "custom: gradient 1 is (2,1), argument 1 is (2)")
  t.fails(function() nn.custom {forward = print} end, "custom: backward is nil; a function is")
  t.fails(function() nn.custom {forwards = print} end, "custom: has no option 'forwards'; did you")
  t.fails(function() nn.custom {forward = function() end, backward = print} () end,
          "custom: forward's result is nil; a tensor is needed")
end)

t.case("tensors print aligned, with elided middles", function()
  assert(tostring(x) == "2x3 tensor f32\n  1.0000  2.0000  3.0000\n  4.0000  5.0000  6.0000")
  assert(tostring(nn.zeros(100, 100)):find "%.%.%.")
  local ten = tostring(nn.arange(100):to("i32"):reshape(10, 10))
  assert(not ten:find "%.%.%." and ten:find "\n  90  91  92  93  94  95  96  97  98  99$")
  assert(tostring(nn.arange(11)):find "%.%.%." and tostring(nn.zeros(9, 20000)):find "%.%.%.")
  assert(tostring(nn.tensor({1, 2}, {dtype = "i64"})) == "2 tensor i64\n  1  2")
end)

t.case("a tensor of many axes prints in at most as many lines and columns as the terminal has",
function()
  local terminal = require "nn.base.terminal"
  local size = terminal.size
  local function lines_of(shape, columns, rows)
    terminal.size = function() return columns, rows end
    local good, text = pcall(tostring, nn.zeros(shape))
    terminal.size = size
    t.check(good, text)
    local lines = {}
    for line in text:gmatch "[^\n]+" do
      t.check(#line <= columns, line)
      lines[#lines + 1] = line
    end
    return lines
  end
  for _, shape in ipairs {{2, 3, 20, 30}, {8, 8, 8, 8}, {20, 30, 40, 20}, {3, 4, 5, 6, 7},
                          {1000, 50}, {3, 3, 3, 3, 3, 3, 3, 3}} do
    for _, rows in ipairs {13, 24, 60} do
      local lines = lines_of(shape, 60, rows)
      t.check(#lines <= rows - 3, ("%d lines of %d"):format(#lines, rows))
      local labels = {}
      for i = 1, #shape - 2 do labels[i] = shape[i] end
      local last = "[" .. table.concat(labels, ",") .. ",:,:]"
      t.check(#shape == 2 or table.concat(lines, "\n"):find(last, 1, true), "the last matrix")
    end
  end
  t.same(#lines_of({2, 3, 20, 30}, 80, 24), 18)
  t.same(lines_of({2, 3, 20, 30}, 36, 12)[5], "  0.0000  ...  0.0000")
  t.same(#lines_of({2, 3, 4}, 80, 24), 9)
end)

t.case("a module prints its fields in the order of creation", function()
  local Net = nn.module "Net"
  function Net:init()
    self.second, self.b = nn.list(2, function() return nn.Linear(2, 2) end), nn.parameter {1}
    self.a, self.drop = nn.Linear(1, 1), nn.Dropout(0)
  end
  local names = {}
  for name in tostring(Net()):gmatch "\n  (%w+):" do names[#names + 1] = name end
  t.same(names, {"second", "b", "a", "drop"})
end)

t.case("a script submits its own tile tasks", function()
  local y = nn.zeros(4, 6):retile {2, 6}:clone()
  nn.task {"fill", write = {y = y:tile_at(2, 1)}, params = {n = 12, value = 3}, priority = 5}
  t.near(y:sum(2):table(), {0, 0, 18, 18}, {abs = 0})
  nn.task {"copy", update = {dst = y:tile_at(1, 1)}, read = {src = y:tile_at(2, 1)}, where = "cpu",
           params = {ndim = 1, extent = {6}, src_stride = {1}, dst_stride = {1}}}
  t.near(y:sum(2):table(), {18, 0, 18, 18}, {abs = 0})
  t.fails(function() nn.task {"fil", write = {}} end,
          "unknown kernel 'fil'; did you mean 'fill'?")
  t.fails(function() nn.task {"fill", params = {n = 1}} end, "operand 'y' is missing")
  t.fails(function() y:tile_at(3, 1) end, "axis 1 has tiles 1 to 2, not 3")
  t.fails(function() nn.task {"fill", write = {z = y:tile_at(1, 1)}} end, "has no operand 'z'")
  local function refused(change, message)
    local task = {"fill", write = {y = y:tile_at(1, 1)}, params = {n = 12, value = 3}}
    for key, value in pairs(change) do task[key] = value end
    t.fails(function() nn.task(task) end, message)
  end
  refused({params = {n = 12, vale = 3}}, "params has no field 'vale'; see nn_fill_params in")
  refused({params = {n = "x"}}, "task fill: params do not fit nn_fill_params: ")
  refused({params = {n = 13}}, "task fill: n is 13, the largest tile has 12 elements")
  refused({read = {y = y:tile_at(1, 1)}},
          "task fill: 'y' is given twice; use update for an operand")
  refused({priority = "high"}, "task fill: priority is 'high'; a whole number from")
  refused({dtype = "f33"}, "task fill: unknown dtype 'f33'")
  refused({were = "cpu"}, "task fill: has no option 'were'; did you mean 'where'?")
end)

t.finish()
