-- The time budget of a step on a described GPU, by count: what each kind of kernel takes.
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local step_plan = require "nn.plan.step"

local M = {}
local options = arguments.names "launch task"

local Budget = {}
Budget.__index = Budget

function Budget:__tostring()
  local rows = {("%-22s %7s %9s %9s %9s"):format("kernel", "tasks", "TFLOP", "GB",
                                                 self.gpus > 1 and "ms/GPU" or "ms")}
  local function row(name, tasks, flops, bytes, seconds)
    rows[#rows + 1] = ("%-22s %7d %9.3f %9.3f %9.3f"):format(name, tasks, flops / 1e12,
                                                            bytes / 1e9, seconds * 1e3)
  end
  for _, cost in ipairs(self.kernels) do
    row(cost.kernel, cost.tasks, cost.flops, cost.bytes, cost.seconds)
  end
  row("launches", self.tasks, 0, 0, self.launches)
  row("all", self.tasks, self.flops, self.bytes, self.seconds)
  rows[#rows + 1] = ("submission: %d groups of tasks, %d temporaries freed, %.3f ms of the driver"
    ):format(self.groups, self.freed, self.driver * 1e3)
  if self.gpus > 1 then
    rows[#rows + 1] = ("%d GPUs: %.3f GB move between them"):format(self.gpus, self.hops / 1e9)
  end
  return table.concat(rows, "\n")
end

--- nn.gpu_budget(build, {launch=5e-6, task=10e-6}) -> budget
--- The time of a step on the GPUs that nn.machine describes, without computing anything: for each
--- kernel its tasks, FLOPs, bytes, and the seconds that the cost model (docs/cuda.md) predicts from
--- the described rates of large products and copies (gpu_gflops, gpu_bandwidth), one after the
--- other, divided by the number of GPUs. build() is as in nn.plan_step.
--- Options: the seconds between the kernels on the GPU, and of the host for each group of tasks
--- that is submitted and each temporary that is freed. Prints as a table. Fields:
--- kernels, tasks, flops and bytes (of all GPUs), launches and seconds (of a GPU), groups, freed,
--- driver (seconds of the host), gpus, hops (bytes between GPUs). Errors: the machine is not
--- described with these rates.
---     nn.machine{gpus=1, gpu_gflops=700e3, gpu_bandwidth="2.8TB/s", gpu_memory="80GB"}
---     local budget = nn.gpu_budget(function()
---       local layer, input = nn.Linear(1000, 1000), nn.zeros(64, 1000)
---       return function() return nn.no_grad(layer, input):sum() end, {weights = layer}
---     end)
---     nn.machine ""
---     budget.tasks  --> 2
function M.gpu_budget(build, given)
  arguments.callable("gpu_budget", build)
  local o = arguments.options("gpu_budget", given, options)
  local gpus = engine.machine().gpus
  local kernels, step = step_plan.gpu_costs(build)
  local out = {kernels = kernels, tasks = 0, flops = 0, bytes = 0, seconds = 0, gpus = gpus,
               groups = step.groups, freed = step.freed, hops = step.hops}
  for _, cost in ipairs(kernels) do
    cost.seconds = cost.seconds / gpus
    out.tasks, out.flops = out.tasks + cost.tasks, out.flops + cost.flops
    out.bytes, out.seconds = out.bytes + cost.bytes, out.seconds + cost.seconds
  end
  out.launches = out.tasks * (o.launch or 5e-6) / gpus
  out.seconds = out.seconds + out.launches
  out.driver = (step.groups + step.freed) * (o.task or 10e-6)
  table.sort(kernels, function(a, b) return a.seconds > b.seconds end)
  return setmetatable(out, Budget)
end

return M
