-- Accuracy of --plan: compares planned and measured memory and time of a step, for several models
-- and batch sizes. A run's peak is that of its worst step, so the largest of all rounds counts.
-- Exits with status 1 if it is more than 5 % below or more than 2 % above the plan.
--   nnlua recipes/bench_plan.lua              all configurations, about a minute on two cores
--   nnlua recipes/bench_plan.lua only=accum   those whose name contains that word

local nn = require "nn"
local run_plan = require "nn.plan.training"
local GPT2 = require "models.gpt2"

local cfg = nn.config({
  only = nn.field("", "run only configurations whose name contains this; empty: all"),
  rounds = nn.field(5, "measurements of each configuration", {min = 1}),
  steps = nn.field(3, "steps per measurement", {min = 1}),
}, arg)

-- name, layers, heads, embd, vocab, batch, context; tokens (per tile); accum; dtype.
local all = {
  {"small", 4, 4, 128, 65, 12, 64},
  {"deep", 8, 4, 128, 65, 16, 64},
  {"wide", 4, 6, 384, 65, 8, 128},
  {"vocabulary", 4, 4, 256, 8000, 4, 256},
  {"batch of 1", 6, 6, 384, 2000, 1, 256},
  {"batch of 32", 4, 4, 192, 500, 32, 128},
  {"tiles of 128", 4, 4, 256, 8000, 4, 256, tokens = 128},
  {"tiles of 64, ragged", 4, 4, 256, 500, 3, 200, tokens = 64},
  {"accum=4", 4, 4, 256, 2000, 4, 128, accum = 4},
  {"accum=8", 4, 4, 128, 65, 12, 64, accum = 8},
  {"bf16", 4, 4, 256, 2000, 4, 256, dtype = "bf16"},
  {"gpt2, 2 x 128", 12, 12, 768, 50257, 2, 128},
}

local function median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

local function measured(build, c, rows)
  local _, _, step = build()
  local function random_ids()
    return nn.uniform({rows, c[7]}, {low = 0, high = c[5], axes = "batch,time"}):to("i32")
  end
  local ids, targets = random_ids(), random_ids()
  local peaks, times = {}, {}
  for round = 0, cfg.rounds do
    collectgarbage()
    nn.sync()
    nn.reset_peak()
    local start, loss = nn.now(), nil
    for _ = 1, cfg.steps do loss = step(ids, targets) end
    loss:item()
    nn.sync()
    if round > 0 then
      peaks[round] = nn.memory().peak
      times[round] = (nn.now() - start) / cfg.steps
    end
  end
  return peaks, median(times)
end

local function compare(c)
  local rows = c[6] * (c.accum or 1)
  nn.tiles {tokens = c.tokens or 0}
  local function build()
    local model = GPT2 {layers = c[2], heads = c[3], embd = c[4], vocab = c[5], context = c[7],
                        dtype = c.dtype or "f32"}
    local optim = nn.AdamW(model, {lr = 1e-4, clip = 1, skip_nonfinite = true})
    return model, optim, nn.compile(function(ids, targets)
      local loss = nn.accumulate(model, c.accum or 1, ids, targets)
      return loss, optim:step()
    end)
  end
  local start = nn.now()
  local plan = run_plan.step(build, rows, c[7], true)
  plan.took = nn.now() - start
  local peaks, seconds = nn.scope(measured, build, c, rows)
  for _ = 1, 2 do collectgarbage() end
  nn.sync()
  return plan, median(peaks), peaks[1], peaks[#peaks], seconds
end

print "memory in MB: planned, measured (min, median, max of the rounds), max / planned"
print "ms per step: planned, measured (median), ratio; seconds spent planning"
local good, count = true, 0
for _, c in ipairs(all) do
  if c[1]:find(cfg.only, 1, true) then
    local plan, middle, least, most, seconds = compare(c)
    count = count + 1
    good = good and most >= 0.95 * plan.peak and most <= 1.02 * plan.peak
    print(("%-20s %9.2f %9.2f %9.2f %9.2f %8.3f | %8.1f %8.1f %6.2f | %6.2f"):format(c[1],
      plan.peak / 1e6, least / 1e6, middle / 1e6, most / 1e6, most / plan.peak,
      plan.seconds * 1e3, seconds * 1e3, plan.seconds / seconds, plan.took))
  end
end
print(("%d configurations: memory is %s"):format(count, good
  and "within 5 % of the plan and at most 2 % above it" or "NOT as planned"))
os.exit(good and 0 or 1)
