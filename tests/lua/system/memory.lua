-- Memory: it stays constant over compiled steps, is bounded by the budget, and is freed by scopes
-- and by the collector.

local ffi = require "ffi"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local function rss()
  return tonumber(assert(io.open("/proc/self/statm")):read("*a"):match "%d+ (%d+)") * 4096
end

local function tensors_alive()
  local n = ffi.new "int64_t[1]"
  ffi.C.nn_tensors_alive(n)
  return tonumber(n[0])
end

t.case("memory stays constant over 1000 compiled steps", function()
  nn.seed(1)
  local model = GPT2 {layers = 2, heads = 2, embd = 128, vocab = 2000, context = 32}
  local optim = nn.AdamW(model, {lr = 1e-3, clip = 1})
  local step = nn.compile(function(x, y)
    optim:zero_grad()
    local loss = model(x, y)
    loss:backward()
    return loss, optim:step()
  end)
  local ids = nn.uniform({2, 32}, {low = 0, high = 2000, axes = "batch,time"}):to("i32")
  local function run(steps)
    for _ = 1, steps do step(ids, ids):item() end
    nn.sync()
    collectgarbage()
    return rss()
  end
  -- The heaps of the C library and of LuaJIT grow at first, on a busy machine for longer. A leak
  -- grows every time.
  local before, after = run(1000), nil
  for _ = 1, 3 do
    after = run(1000)
    print(("RSS %.1f MB, 1000 steps later %.1f MB"):format(before / 1e6, after / 1e6))
    if math.abs(after - before) <= 0.02 * before then break end
    before = after
  end
  assert(math.abs(after - before) <= 0.02 * before,
         ("RSS went from %d to %d"):format(before, after))
  local in_use = nn.memory().in_use
  assert(in_use < 3 * 16 * model:count(), "tiles hold " .. in_use .. " bytes")
end)

t.case("a scope frees what was made in it, except its results", function()
  collectgarbage()
  collectgarbage()
  local before = tensors_alive()
  local kept, inside = nn.scope(function()
    local x = nn.randn(100, 100)
    local y = x * 2
    return y:sum(), {x}
  end)
  t.near(tensors_alive() - before, 1, {abs = 0})
  assert(kept:item() == kept:item())
  t.fails(function() return inside[1]:sum() end, "this handle is not a live tensor")
end)

t.case("a scope frees after an error too", function()
  collectgarbage()
  collectgarbage()
  local before = tensors_alive()
  t.fails(function()
    nn.scope(function()
      local x = nn.randn(10)
      return x:matmul(nn.randn(11))
    end)
  end, "the inner sizes 10 and 11 differ")
  t.near(tensors_alive(), before, {abs = 0})
end)

t.case("dropped tensors are collected: gigabytes pass through a small arena", function()
  nn.reset_peak()
  for _ = 1, 500 do
    local x = nn.ones(1024, 1024)   -- 4 MB each, 2 GB in all
    x:add_(x)
  end
  nn.sync()
  local peak = nn.memory().peak
  assert(peak < 1.2e9, "peak of " .. peak)
end)

t.case("what does not fit the budget is refused with the bytes, after collecting; "
       .. "then work continues", function()
  collectgarbage()
  collectgarbage()
  nn.memory_budget(64e6)
  t.fails(function() return nn.zeros(10000, 10000) end, "does not fit")
  for _ = 1, 20 do   -- 20 x 16 MB fit one after the other
    assert(nn.ones(4000, 1000):at(1, 1) == 1)
  end
  nn.memory_budget(0)
end)

t.finish()
