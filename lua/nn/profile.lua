-- Where time goes: by kernel, measured on the workers; and the machine's own matrix-product rate to
-- compare with.

local ffi = require "ffi"
local arguments = require "nn.arguments"
local lib = require "nn.ffi"
local C, check = lib.C, lib.check

local M = {}

--- nn.profile(f, ...) runs f and returns {kernels = {{name, calls, seconds, flops, bytes}, ...}
--- (most seconds first), seconds, tasks, replayed_tasks, replay_seconds, starpu_seconds}.
---     nn.profile(function() return x:matmul(x:t()) end).seconds > 0  --> true
function M.profile(f, ...)
  local nn = require "nn"
  arguments.callable("profile", f)
  check(C.nn_profile(1))
  local start = nn.now()
  f(...)
  nn.sync()
  local out = {seconds = nn.now() - start, kernels = {}}
  local stat = ffi.new "nn_kernel_stat_t"
  for name, kernel in pairs(nn.kernels()) do
    check(C.nn_kernel_stat(kernel.index, stat))
    if stat.calls > 0 then
      out.kernels[#out.kernels + 1] = {
        name = name, calls = tonumber(stat.calls), seconds = stat.seconds, flops = stat.flops,
        bytes = stat.bytes,
      }
    end
  end
  table.sort(out.kernels, function(a, b) return a.seconds > b.seconds end)
  local stats = ffi.new "nn_stats_t"
  check(C.nn_stats(stats))
  out.tasks, out.replayed_tasks = tonumber(stats.tasks), tonumber(stats.replayed_tasks)
  out.replay_seconds, out.starpu_seconds = stats.replay_seconds, stats.starpu_seconds
  check(C.nn_profile(0))
  return out
end

--- nn.sgemm_gflops(size=2048) -> GFLOP/s of f32 matrix products of that size, one on every worker
--- at once: the best of five rounds after a warm-up.
---     nn.sgemm_gflops(256) > 0  --> true
function M.sgemm_gflops(size)
  local nn = require "nn"
  size = size or 2048
  local workers = nn.workers()
  return nn.no_grad(function()
    local a, b, best = {}, {}, 0
    for i = 1, workers do
      a[i], b[i] = nn.rand(size, size):retile {0, 0}, nn.rand(size, size):retile {0, 0}
    end
    for round = 0, 5 do
      nn.sync()
      local start = nn.now()
      local products = {}
      for i = 1, workers do products[i] = a[i]:matmul(b[i]) end
      nn.sync()
      local rate = 2 * size ^ 3 * workers / (nn.now() - start) / 1e9
      if round > 0 then best = math.max(best, rate) end
      for i = 1, workers do products[i]:release() end
    end
    return best
  end)
end

return M
