-- Learning-rate schedules: functions of the step number only, so that a resumed run is exact.
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"

local M = {}

local kinds = {}     -- kinds[name](progress, options) -> factor from 0 (min_lr) to 1 (lr)

function kinds.constant() return 1 end

function kinds.linear(progress) return 1 - progress end

function kinds.cosine(progress) return 0.5 * (1 + math.cos(math.pi * progress)) end

-- Warm-up, stable, decay (Hu et al. 2024, arXiv 2404.06395): decays linearly in the last steps.
function kinds.wsd(progress, options)
  local decay = options.decay or 0.2
  return math.min(1, (1 - progress) / decay)
end

--- nn.schedules: the kinds of schedule that nn.schedule accepts.
---     table.concat(nn.schedules, " ")  --> "constant cosine linear wsd"
M.schedules = {"constant", "cosine", "linear", "wsd"}

local known = arguments.names "kind lr min_lr warmup steps decay"

--- nn.schedule{kind="cosine", lr=, min_lr=0, warmup=0, steps=, decay=0.2}
---   -> function(step) -> learning rate
--- Steps count from 1 to `steps`. In the first `warmup` steps the rate rises linearly to `lr`. Then
--- it falls to `min_lr` at step `steps` along a cosine or a line ("linear"), stays at `lr`
--- ("constant"), or stays and falls linearly in the last steps ("wsd"; `decay` is their fraction of
--- the steps after the warm-up). Errors: an unknown kind, no lr, or no steps for a kind that needs
--- them.
---     local lr = nn.schedule{kind = "cosine", lr = 1e-3, warmup = 100, steps = 2000}
---     lr(1), lr(101), lr(2000)  --> 9.90e-6, 1e-3, 6.8e-10
function M.schedule(options)
  options = arguments.options("schedule", options, known)
  local kind, lr, steps = options.kind or "cosine", options.lr, options.steps
  local warmup, min_lr = options.warmup or 0, options.min_lr or 0
  local shape = kinds[kind]
  local function need(given, ...) return given or lib.fail(...) end
  need(shape, "schedule: unknown kind '%s'; choose one of %s", kind,
       table.concat(M.schedules, ", "))
  need(lr, "schedule: give lr, the peak learning rate")
  need(steps or kind == "constant", "schedule: the kind '%s' needs `steps`", kind)
  if min_lr > lr then
    lib.fail("schedule: min_lr=%g is larger than lr=%g; lower schedule.min_lr or raise optim.lr",
             min_lr, lr)
  end
  return function(step)
    if step <= warmup then return lr * step / (warmup + 1) end
    local progress = kind == "constant" and 0 or (step - 1 - warmup) / math.max(1, steps - warmup)
    return min_lr + (lr - min_lr) * shape(math.min(1, progress), options)
  end
end

return M
