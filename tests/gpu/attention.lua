-- Attention in bf16 with heads of 64 and 128 on a GPU, with cuDNN and with our own kernels:
-- compares values and gradients with float64 on a CPU, as tests/gpu/ops.lua does, and checks that
-- the backends that promise determinism are deterministic.
local nn = require "nn"
local t = require "nn.test"

-- NNLUA_REHEARSE=1: the CPU stands in for the GPU.
local rehearsal = os.getenv "NNLUA_REHEARSE" ~= nil
local seed = tonumber(os.getenv "NNLUA_TEST_SEED" or 11)
local _, gpus = nn.workers()
local tested = rehearsal and "cpu" or "gpu"

-- The largest difference, relative to the largest element.
local function distance(a, b)
  local x, n = a:numbers()
  local y = b:numbers()
  local scale, worst = 1e-30, 0
  for i = 0, n - 1 do scale = math.max(scale, math.abs(y[i])) end
  for i = 0, n - 1 do
    local gap = math.abs(x[i] - y[i]) / scale
    worst = gap == gap and math.max(worst, gap) or math.huge
  end
  return worst
end

-- o, log-sum-exps and dqkv for a shape. The inputs are exact in bf16.
local function results(shape, dtype, where, backend)
  nn.seed(seed)
  nn.run_tasks_on "cpu"
  local width = (shape.heads + 2 * shape.kv_heads) * shape.dim
  local function input(columns)
    return nn.uniform({shape.batch, shape.len, columns},
                      {low = -1, high = 1, axes = "batch,time,hidden"}):to("bf16"):to(dtype)
  end
  local options = {heads = shape.heads, kv_heads = shape.kv_heads, causal = shape.causal}
  local qkv, dout = input(width), input(shape.heads * shape.dim)
  nn.run_tasks_on(where)
  nn.attention_backend(backend)
  local o, stats = nn.attention(qkv, options)
  local dqkv = nn.attention_backward(dout, qkv, o, stats, options)
  nn.sync()
  nn.attention_backend "auto"
  nn.run_tasks_on "auto"
  return {o, stats, dqkv}
end

local shapes = {
  {batch = 2, len = 128, heads = 2, kv_heads = 2, dim = 64, causal = true},
  {batch = 3, len = 200, heads = 4, kv_heads = 2, dim = 64, causal = true},
  {batch = 1, len = 257, heads = 4, kv_heads = 1, dim = 128, causal = true},
  {batch = 2, len = 77, heads = 2, kv_heads = 2, dim = 128, causal = false},
}
for _, shape in ipairs(shapes) do
  local name = ("(%d,%d) %d/%d heads of %d%s"):format(shape.batch, shape.len, shape.heads,
    shape.kv_heads, shape.dim, shape.causal and "" or ", not causal")
  for _, backend in ipairs {"auto", "cudnn", "nnlua"} do
    t.case(("attention %s with %s: GPU = CPU"):format(name, backend), function()
      if gpus == 0 and not rehearsal then t.skip "no GPU" end
      local want = results(shape, "f64", "cpu", "auto")
      local cpu = results(shape, "bf16", "cpu", "auto")
      local good, gpu = pcall(results, shape, "bf16", tested, backend)
      if not good and tostring(gpu):find("nn.attention_backend is", 1, true) then
        nn.attention_backend "auto"
        nn.run_tasks_on "auto"
        t.skip(tostring(gpu))
      end
      t.check(good, tostring(gpu))
      for i, what in ipairs {"o", "stats", "dqkv"} do
        local allowed = 4 * distance(cpu[i], want[i]) + (what == "stats" and 1e-4 or 1.6e-2)
        local far = distance(gpu[i], want[i])
        t.check(far <= allowed, ("%s differs by %g; the limit is %g"):format(what, far, allowed))
      end
    end)
  end
  for _, backend in ipairs {"auto", "nnlua"} do
    t.case(("attention %s with %s is deterministic"):format(name, backend), function()
      if gpus == 0 and not rehearsal then t.skip "no GPU" end
      local first = results(shape, "bf16", tested, backend)
      for _ = 1, 4 do
        local again = results(shape, "bf16", tested, backend)
        for i = 1, 3 do t.same(distance(again[i], first[i]), 0) end
      end
    end)
  end
end

t.finish()
