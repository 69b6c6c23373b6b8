-- Compiled functions: recorded once per shape, then replayed while data, scalars and randomness
-- change between calls.

local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"

t.case("a compiled function gives the function's results, for every shape", function()
  local f = nn.compile(function(x, y) return (x * 2 + y):sum(1), x:matmul(y:t()) end)
  for rows = 2, 4 do
    local x, y = nn.randn(rows, 3), nn.randn(rows, 3)
    local a, b = f(x, y)
    t.near(a:table(), ((x * 2 + y):sum(1)):table(), {abs = 0})
    t.near(b:table(), x:matmul(y:t()):table(), {abs = 0})
  end
end)

t.case("scalars are read at each call, even with calls in flight", function()
  local s = nn.scalar(1)
  local w = nn.zeros(4)
  local f = nn.compile(function(g)
    w:sgd_(g, {lr = s})
    return w * 1
  end)
  local g, results, expected = nn.ones(4), {}, 0
  for i = 1, 50 do
    s:set(i)
    results[i] = f(g)
  end
  for i = 1, 50 do
    expected = expected - i
    t.near(results[i]:at(1), expected, {abs = 0})
  end
end)

t.case("additions to a scalar are applied at each call", function()
  local s = nn.scalar(0)
  local w = nn.zeros(1)
  local f = nn.compile(function(g)
    s:add(1)
    w:sgd_(g, {lr = s})
    return w * 1
  end)
  for _ = 1, 4 do f(nn.ones(1)) end
  t.near(s:get(), 4, {abs = 0})
  t.near(w:item(), -(1 + 2 + 3 + 4), {abs = 0})
end)

t.case("values cannot be read while recording, and the session continues", function()
  local f = nn.compile(function(x) return x * x:sum():item() end)
  t.fails(function() f(nn.ones(2)) end,
          "a value cannot be read while a compiled function is being recorded")
  t.near((nn.ones(2) * 3):sum():item(), 6, {abs = 0})
end)

t.case("a tensor of the recording is refused outside it", function()
  local leaked
  local f = nn.compile(function(x)
    leaked = x * 2
    return leaked + 1
  end)
  t.near(f(nn.ones(2)):at(1), 3, {abs = 0})
  t.fails(function() return (leaked + 1):item() end,
          "this tensor exists only inside the compiled function that made it")
end)

t.case("numbers as arguments are refused with a hint", function()
  local f = nn.compile(function(x) return x end)
  t.fails(function() f(3) end, "a number that changes between calls is an nn.scalar")
end)

t.case("a compiled function inside another is recorded into it", function()
  local inner = nn.compile(function(x) return x * 2 end)
  local outer = nn.compile(function(x) return inner(x) + 1 end)
  t.near(outer(nn.ones(3)):table(), {3, 3, 3}, {abs = 0})
  t.near(inner(nn.ones(3)):table(), {2, 2, 2}, {abs = 0})
end)

-- A profile submits tasks one by one. Otherwise a small model with a tile of tokens for each worker
-- submits short ones in groups.
t.case("tasks that are submitted in groups give the bits of single tasks", function()
  nn.tiles {tokens = 8}
  local function train(run)
    nn.seed(5)
    local model = GPT2 {layers = 2, heads = 2, embd = 32, vocab = 40, context = 32, dropout = 0.2}
    local optim = nn.AdamW(model, {lr = 1e-2, clip = 1})
    local step = nn.compile(function(ids, targets)
      optim:zero_grad()
      local loss = model(ids, targets)
      loss:backward()
      return loss, optim:step()
    end)
    local out = {}
    for i = 1, 5 do
      optim.lr = 1e-2 / i
      local ids = nn.uniform({8, 33}, {low = 0, high = 40, axes = "batch,time"}):to "i32"
      run(function()
        local loss = step(ids:slice(2, 1, 32):clone(), ids:slice(2, 2, 33):clone())
        out[#out + 1] = loss:item()
      end)
    end
    for _, parameter in ipairs(model:parameters()) do
      out[#out + 1] = checksums.of(parameter.tensor)
    end
    return out
  end
  t.same(train(function(f) f() end), train(nn.profile))
  nn.tiles {tokens = 0}
end)

t.case("gradients of a compiled step stay inside, and earlier ones do not change", function()
  local w = nn.tensor({1, 2}, {grad = true})
  local f = nn.compile(function(x)
    local loss = (w * x):sum()
    loss:backward()
    return loss
  end)
  f(nn.ones(2))
  assert(w.grad == nil)
end)

t.case("each call of a compiled step starts without gradients", function()
  local w, v = nn.tensor({1, 2}, {grad = true}), nn.tensor({3, 4}, {grad = true})
  for _ = 1, 2 do ((w * w):sum() + v:sum()):backward() end
  local f = nn.compile(function(x)
    (w * x + v):sum():backward()
    return w.grad, v.grad
  end)
  for _ = 1, 3 do
    local w_grad, v_grad = f(nn.tensor {5, 6})
    t.same({w_grad:table(), v_grad:table()}, {{5, 6}, {1, 1}})
  end
  t.same({w.grad:table(), v.grad:table()}, {{4, 8}, {2, 2}})
  t.fails(function() nn.SGD({nn.ones(2, {grad = true})}, {lr = 1}):step() end,
          "in nn.compile, gradients are local to the function")
end)

t.case("a wrong number of results, or a result that is not a tensor, is refused", function()
  local f = nn.compile(function(x) return x, 3 end)
  t.fails(function() f(nn.ones(1)) end, "result 2 is a number")
end)

t.case("a compiled function keeps the programs of its most recently used shapes", function()
  local recorded = {}
  local f = nn.compile(function(x)
    recorded[#recorded + 1] = x:dim(1)
    return x * 2
  end, {programs = 3})
  for _, n in ipairs {1, 2, 3, 1, 4, 1, 3, 2} do            -- 4 frees 2, and then 2 frees 4
    t.same(f(nn.ones(n)):sum():item(), 2 * n)
  end
  t.same(recorded, {1, 2, 3, 4, 2})
  t.check(tostring(f):find "recorded for 3 shapes", tostring(f))
  t.fails(function() nn.compile(print, {programs = 0}) end, "compile: programs is 0; a whole")
  t.fails(function() nn.compile(print, {program = 1}) end, "has no option 'program'")
end)

t.case("a program is freed only after its tasks, and its results stay", function()
  local w = nn.zeros(4)
  local f = nn.compile(function(x)
    w:sgd_(x:sum(1), {lr = -1})
    return x:matmul(x:t()), w * 1
  end, {programs = 1})
  local results, sums = {}, {}
  for n = 1, 40 do results[n], sums[n] = f(nn.ones(n, 4)) end
  for n = 1, 40 do
    t.same(results[n]:sum():item(), 4 * n * n)
    t.same(sums[n]:at(1), n * (n + 1) / 2)
  end
end)

t.case("calls with hundreds of shapes do not take more and more memory", function()
  local model = GPT2 {layers = 2, heads = 2, embd = 32, context = 512, vocab = 65}
  local optim = nn.AdamW(model)
  local step = nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
  local function resident()                                  -- MB
    for line in io.lines "/proc/self/status" do
      local kilobytes = line:match "^VmRSS:%s*(%d+)"
      if kilobytes then return tonumber(kilobytes) / 1024 end
    end
  end
  local function use(first, last)
    for n = first, last do
      local ids = nn.zeros({1, n}, {dtype = "i32", axes = "batch,time"})
      step(ids, ids)
    end
    nn.sync()
    return resident()
  end
  local before = use(1, 60)
  local after = use(61, 260)
  t.check(after < before + 80, ("%.0f MB, then %.0f MB"):format(before, after))
end)

t.finish()
