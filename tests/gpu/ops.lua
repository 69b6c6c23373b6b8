-- Every op on a GPU, on the samples in its declaration: in f32, f32 with TF32 products, and bf16,
-- compared with the same op in f64 on a CPU. The limit on the difference is four times that of the
-- CPU result in the same dtype, plus a few roundings. Run with NNLUA_POISON=1, as tests/gpu/run
-- does, to detect elements that are never written.
local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local samples = require "samples"

-- NNLUA_REHEARSE=1: the CPU stands in for the GPU, to test this script itself.
local rehearsal = os.getenv "NNLUA_REHEARSE" ~= nil
local seed = tonumber(os.getenv "NNLUA_TEST_SEED" or 11)
local _, gpus = nn.workers()
if gpus == 0 and not rehearsal then
  t.case("ops on a GPU", function() t.skip "no GPU" end)
  t.finish()
  return
end

local is_float = {f32 = true, bf16 = true}
local roundoff = {f32 = 1.2e-6, tf32 = 2e-3, bf16 = 1.6e-2}

-- The largest difference, relative to the largest element. Infinities and NaN must be equal.
local function distance(a, b)
  local x, n = a:numbers()
  local y = b:numbers()
  local scale, worst = 1e-30, 0
  for i = 0, n - 1 do
    if math.abs(y[i]) < math.huge then scale = math.max(scale, math.abs(y[i])) end
  end
  for i = 0, n - 1 do
    local same = x[i] == y[i] or (x[i] ~= x[i] and y[i] ~= y[i])
    if not same then
      local gap = math.abs(x[i] - y[i]) / scale
      worst = gap == gap and math.max(worst, gap) or math.huge
    end
  end
  return worst
end

-- Results of an op on the device kind `where`, with the same inputs and random seeds in every call.
local function results(declared, text, dtype, where, rounded_to)
  nn.seed(seed)
  nn.run_tasks_on "cpu"
  local inputs, values = samples.arguments(declared, text, dtype)
  for i = 1, table.maxn(inputs) do
    if nn.is_tensor(inputs[i]) and rounded_to and inputs[i].dtype == "f64" then
      inputs[i] = inputs[i]:to(rounded_to):to "f64"
    end
  end
  nn.seed(seed + 1)
  nn.run_tasks_on(rehearsal and "cpu" or where)
  local list = {samples.apply(declared, inputs, values)}
  nn.sync()
  nn.run_tasks_on "auto"
  return list, table.maxn(list)
end

for _, precision in ipairs {"f32", "tf32", "bf16"} do
  local dtype = precision == "tf32" and "f32" or precision
  samples.each(function(declared, text)
    t.case(("%s %s in %s: GPU = CPU"):format(declared.name, text, precision), function()
      local want, n = results(declared, text, "f64", "cpu", dtype)
      local good, cpu = pcall(results, declared, text, dtype, "cpu")
      if not good then t.skip("the sample does not support " .. dtype .. ": " .. tostring(cpu)) end
      nn.matmul_precision(precision == "tf32" and "high" or "highest")
      local gpu = results(declared, text, dtype, "gpu")
      nn.matmul_precision "highest"
      for i = 1, n do
        if want[i] then
          t.same(gpu[i].dtype, cpu[i].dtype)
          local allowed = is_float[gpu[i].dtype]
            and 4 * distance(cpu[i], want[i]) + roundoff[precision] or 0
          local reference = is_float[gpu[i].dtype] and want[i] or cpu[i]
          local far = distance(gpu[i], reference)
          t.check(far <= allowed,
                  ("result %d differs by %g; the limit is %g"):format(i, far, allowed))
        end
      end
    end)
  end)
end

t.finish()
