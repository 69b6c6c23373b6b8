-- Learning-rate schedules: functions of the step number, nothing else, so that a resumed run goes
-- on exactly.
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"

local M = {}

local kinds = {}     -- kinds[name](progress, options) -> factor from 0 (min_lr) to 1 (lr)

function kinds.constant() return 1 end

function kinds.linear(progress) return 1 - progress end

function kinds.cosine(progress) return 0.5 * (1 + math.cos(math.pi * progress)) end

-- Warm-up, stable, decay (Hu et al. 2024, arXiv 2404.06395): the last part of the steps goes down
-- linearly.
function kinds.wsd(progress, options)
  local decay = options.decay or 0.2
  return math.min(1, (1 - progress) / decay)
end

--- nn.schedules: the kinds of nn.schedule.
---     table.concat(nn.schedules, " ")  --> "constant cosine linear wsd"
M.schedules = {"constant", "cosine", "linear", "wsd"}

local known = arguments.names "kind lr min_lr warmup steps decay"

--- nn.schedule{kind="cosine", lr=, min_lr=0, warmup=0, steps=, decay=0.2}
---   -> function(step) -> learning rate
--- Steps count from 1 to `steps`. During the first `warmup` steps the rate rises linearly to `lr`;
--- from there to `steps` it falls to `min_lr` along a "cosine" or "linear"ly, stays ("constant"),
--- or ("wsd") stays and falls linearly in the last `decay` part of the steps after the warm-up.
--- Errors: an unknown kind, no lr, or no steps where the kind needs them.
---     local lr = nn.schedule{kind = "cosine", lr = 1e-3, warmup = 100, steps = 2000}
---     lr(1), lr(101), lr(2000)  --> 9.90e-6, 1e-3, 6.8e-10
function M.schedule(options)
  options = arguments.options("schedule", options, known)
  local kind, lr, steps = options.kind or "cosine", options.lr, options.steps
  local warmup, min_lr = options.warmup or 0, options.min_lr or 0
  local shape = kinds[kind]
  local function need(given, ...) return given or lib.fail(...) end
  need(shape, "schedule: no kind '%s'; there are %s", kind, table.concat(M.schedules, ", "))
  need(lr, "schedule: give lr, the learning rate at its peak")
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
