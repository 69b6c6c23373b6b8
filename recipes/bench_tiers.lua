-- Training with less memory than the model needs, beside training with enough memory.
--   nnlua recipes/bench_tiers.lua model=gpt2 batch=4 tokens=256 budgets=25,50 ratios=0.5,1,2,4
-- For each budget of RAM and each rate of the disk: tokens per second beside the roofline, the
-- bytes moved beside their lower bound, and what the plan predicted. A disk's rate is given as the
-- ratio of the computing time to the least transfer time, so at 1 and less the disk is the limit.
--   nnlua recipes/bench_tiers.lua mode=depth budgets=30 ratios=0,2
-- The same for models of 4 to 64 layers of about equal size, whose speed should be about equal.
--   nnlua recipes/bench_tiers.lua mode=plans
-- Predicted and measured seconds, bytes and peak of 14 configurations.
--   nnlua recipes/bench_tiers.lua mode=one model=gpt2-xl batch=1 tokens=1024 ram=6GB disk=/var/tmp
-- One run with everything that it measures, for models that fit into no other memory.
-- Each run is a process of its own. Losses must be those of the run with enough memory, to the bit.

local json = require "cjson"
local nn = require "nn"
local training = require "nn.plan.training"
local units = require "nn.base.units"
local GPT2 = require "models.gpt2"

local schema = {
  model = nn.field("gpt2", "a size of GPT2.size, or custom with the sizes below"),
  layers = nn.field(12, "layers of a custom model", {min = 1}),
  heads = nn.field(12, "heads of a custom model", {min = 1}),
  embd = nn.field(768, "hidden size of a custom model", {min = 1}),
  vocab = nn.field(50257, "vocabulary size of a custom model", {min = 1}),
  dtype = nn.field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  rounding = nn.field("nearest", "of bf16 weights", {choices = {"nearest", "stochastic"}}),
  batch = nn.field(4, "sequences per microbatch", {min = 1}),
  accum = nn.field(1, "microbatches per step", {min = 1}),
  tokens = nn.field(256, "tokens per sequence", {min = 1}),
  clip = nn.field(1, "largest gradient norm; 0: no clipping", {min = 0, real = true}),
  activations = nn.field("auto", "see nn.activations", {choices = {"auto", "keep", "recompute"}}),
  budgets = nn.field("25,50", "RAM in percent of the parameters and moments"),
  ratios = nn.field("0.5,1,2,4", "computing time over transfer time; 0: the disk as it is"),
  depths = nn.field("4,8,16,32,64", "mode=depth: numbers of layers"),
  size = nn.field(50, "mode=depth: million parameters", {min = 1}),
  only = nn.field("", "mode=plans: only configurations whose name contains this"),
  disk = nn.field("/var/tmp", "folder of the disk", {path = true}),
  warmup = nn.field(2, "steps before those that are measured", {min = 1}),
  steps = nn.field(3, "measured steps", {min = 1}),
  ram = nn.field("", 'mode=one: RAM for tensors, such as "6GB"; empty: all'),
  rate = nn.field(0, "mode=one: bytes per second of the disk; 0: no limit", {min = 0, real = true}),
  mode = nn.field("speed", "what is measured", {choices = {"speed", "depth", "plans", "one", "plan",
                                                           "run"}}),
}
local cfg = nn.config(schema, arg)
local rows = cfg.batch * cfg.accum

local function build()
  local size = cfg.model ~= "custom" and GPT2.size(cfg.model)
    or {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab}
  size.context, size.dtype = math.max(size.context or 0, cfg.tokens), cfg.dtype
  local model = GPT2(size)
  local optim = nn.AdamW(model, {lr = 1e-4, weight_decay = 0.1, clip = cfg.clip,
                                 rounding = cfg.rounding})
  return model, optim, nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = nn.accumulate(model, cfg.accum, ids, targets)
    return loss, optim:step()
  end)
end

-- The plan of a step: its bytes and seconds, and the peak of tensors and of the process.
local function planned()
  local start = nn.now()
  local plan = training.step(build, rows, cfg.tokens, true, nil, cfg.accum)
  local tiers = plan.tiers or {kept = plan.peak, rest = 0, in_store = 0, seconds = plan.seconds}
  local upper = plan.tiers and tiers.levels[1] or {loaded = {total = 0}, stored = {total = 0},
                                                  least_moved = 0, lru_moved = 0, slots = 0,
                                                  reserved = 0}
  return {moved = upper.loaded.total + upper.stored.total, least = upper.least_moved,
          lru = upper.lru_moved, seconds = tiers.seconds, took = nn.now() - start,
          slots = upper.slots, peak = upper.slots + tiers.kept, reserved = upper.reserved,
          rest = tiers.rest, disk = tiers.in_store, state = plan.state,
          parameters = plan.parameters, recomputed = plan.recomputed}
end

-- Trains -> losses; seconds, bytes and memory of a step. note(name, text): called on the way.
local function trained(note)
  local start = nn.now()
  local model, _, step = build()
  nn.sync()
  note("creation", ("%.1f s, %s on the disk"):format(nn.now() - start,
                                                     units.bytes(nn.memory().disk.used)))
  local function ids()
    return nn.uniform({rows, cfg.tokens}, {low = 0, high = model.config.vocab,
                                           axes = "batch,time"}):to("i32")
  end
  local batches, losses, ends, moved = {}, {}, {}, {}
  -- The step after the measured ones runs the updates that they defer.
  for i = 1, cfg.warmup + cfg.steps + 1 do batches[i] = {ids(), ids()} end
  nn.sync()
  start = nn.now()
  local function read(i)
    losses[i] = ("%.17g"):format(losses[i]:item())
    ends[i] = nn.now() - start
    local disk = nn.memory().disk
    moved[i] = disk.read + disk.written
    note("step " .. i, ("loss %s after %.1f s, %s moved"):format(losses[i], ends[i],
                                                                 units.bytes(moved[i])))
  end
  -- Steps follow each other as in training: a step may begin while the one before ends.
  for i, batch in ipairs(batches) do
    losses[i] = step(batch[1], batch[2])
    if i > 1 then read(i - 1) end
    if i == cfg.warmup then nn.reset_peak() end
  end
  read(#batches)
  nn.sync()
  local memory, from, to = nn.memory(), cfg.warmup, cfg.warmup + cfg.steps
  return {losses = losses, seconds = (ends[to] - ends[from]) / cfg.steps,
          moved = (moved[to] - moved[from]) / cfg.steps, peak = memory.peak,
          slots = memory.slots, resident = memory.resident_peak, cached = memory.cached,
          disk = memory.disk.used,
          state = 3 * 4 * model:count()}  -- parameters and moments, f32
end

-- What a process of this benchmark does.
local function use_memory()
  nn.seed(1)
  nn.activations(cfg.activations)
  if cfg.ram ~= "" then
    nn.memory_tiers {ram = cfg.ram, disk = cfg.disk, disk_rate = cfg.rate > 0 and cfg.rate or nil}
  end
end

-- Runs this benchmark in a process of its own -> its result. changes: settings that differ.
local function process(mode, changes)
  local words = {}
  for name in pairs(schema) do
    local value = changes[name] or cfg[name]
    if name == "mode" then value = mode end
    if type(value) == "number" then value = ("%.17g"):format(value) end
    words[#words + 1] = ("'%s=%s'"):format(name, value:gsub("'", "'\\''"))
  end
  local pipe = io.popen(("/proc/$PPID/exe '%s' %s"):format(arg[0], table.concat(words, " ")))
  local text = pipe:read "*a"
  pipe:close()
  local found = text:match "({.*})"
  if not found then nn.fail("a run failed: %s\n%s", table.concat(words, " "), text) end
  return json.decode(found)
end

local function with(settings, more)
  local out = {}
  for _, list in ipairs {settings, more} do
    for name, value in pairs(list) do out[name] = value end
  end
  return out
end

local function numbers(text)
  local out = {}
  for word in text:gmatch "[^,]+" do out[#out + 1] = tonumber(word) end
  return out
end

local function check_losses(found, resident)
  for i, loss in ipairs(found.losses) do
    if loss ~= resident.losses[i] then
      nn.fail("step %d: a loss of %s, %s with enough memory", i, loss, resident.losses[i])
    end
  end
end

local disk_rate

-- A remark if the disk is slower than this rate, else "".
local function remark_on(rate)
  if rate == 0 then return "" end
  disk_rate = disk_rate or nn.measure_disk(cfg.disk)
  if rate <= disk_rate then return "" end
  return ("  (the disk reaches %.2f GB/s, not %.2f GB/s)"):format(disk_rate / 1e9, rate / 1e9)
end

-- A run with this share of the state as RAM, in percent, and this ratio of computing to transfer
-- time -> its plan, its results, its speed beside the resident run, the disk's rate, and a remark
-- if the disk is slower.
local function limited(resident, changes, percent, ratio)
  local ram = ("%.0fB"):format(math.floor(resident.state * percent / 100))
  local settings, rate = with(changes, {ram = ram}), 0
  if ratio > 0 then
    rate = math.floor(ratio * process("plan", settings).least / resident.seconds)
    settings.rate = rate
  end
  local found = process("run", settings)
  check_losses(found, resident)
  return found.plan, found, resident.seconds / found.seconds, rate, remark_on(rate)
end

local function measure_speed()
  local resident, tokens = process("run", {}), rows * cfg.tokens
  print(("%s, %d x %d x %d tokens per step, clip %g: %.1f tokens/s with enough memory (%.2f GB)")
    :format(cfg.model, cfg.accum, cfg.batch, cfg.tokens, cfg.clip, tokens / resident.seconds,
            resident.peak / 1e9))
  print(("%6s %6s %10s %9s %9s %9s %8s %8s %8s %10s"):format("RAM", "ratio", "disk", "tokens/s",
    "speed", "roofline", "moved", "/ least", "/ LRU", "predicted"))
  for _, percent in ipairs(numbers(cfg.budgets)) do
    for _, ratio in ipairs(numbers(cfg.ratios)) do
      local plan, found, speed, rate, remark = limited(resident, {}, percent, ratio)
      print(("%5.0f%% %6g %7.2f GB %9.1f %9.3f %9.3f %5.2f GB %8.2f %8.2f %10.3f%s"):format(
        percent, ratio, rate / 1e9, tokens / found.seconds, speed,
        ratio > 0 and speed / math.min(1, ratio) or 0,
        found.moved / 1e9, found.moved / plan.least, found.moved / plan.lru,
        found.seconds / plan.seconds, remark))
    end
  end
end

-- The hidden size, a multiple of 64, with which a model of this depth has nearest to cfg.size
-- million parameters: 12 embd^2 per layer, and the embeddings of `vocab` tokens and positions.
local function shape_of(layers, vocab)
  local best
  for embd = 64, 8192, 64 do
    local count = 12 * layers * embd ^ 2 + (vocab + cfg.tokens) * embd
    if not best or math.abs(count - cfg.size * 1e6) < math.abs(best.count - cfg.size * 1e6) then
      best = {embd = embd, count = count}
    end
  end
  return best.embd
end

local function measure_depth()
  local percent, vocab = numbers(cfg.budgets)[1], 512
  print(("RAM %g %% of the parameters and moments, %d x %d x %d tokens per step"):format(
    percent, cfg.accum, cfg.batch, cfg.tokens))
  for _, ratio in ipairs(numbers(cfg.ratios)) do
    print(("%6s %6s %6s %11s %12s %9s %9s %8s %10s"):format("ratio", "layers", "embd",
      "parameters", "resident s", "seconds", "speed", "/ least", "predicted"))
    local least, most = math.huge, 0
    for _, layers in ipairs(numbers(cfg.depths)) do
      local embd = shape_of(layers, vocab)
      local changes = {model = "custom", layers = layers, embd = embd, heads = embd / 64,
                       vocab = vocab}
      local resident = process("run", changes)
      local plan, found, speed, _, remark = limited(resident, changes, percent, ratio)
      least, most = math.min(least, speed), math.max(most, speed)
      print(("%6g %6d %6d %11s %12.3f %9.3f %9.3f %8.2f %10.3f%s"):format(ratio, layers, embd,
        units.number(plan.parameters), resident.seconds, found.seconds, speed,
        found.moved / plan.least, found.seconds / plan.seconds, remark))
    end
    print(("ratio %g: the speeds are within %.1f %% of each other"):format(
      ratio, 100 * (most / least - 1)))
  end
end

-- Name; settings of the model; RAM in percent of the state; ratio of computing to transfer time.
local small = {model = "custom", layers = 8, heads = 8, embd = 512, vocab = 4096, batch = 8,
               tokens = 256}
local configurations = {
  {"plain", {}, 40, 2},
  {"the machine's disk", {}, 40, 0},
  {"little memory", {}, 25, 1},
  {"much memory", {}, 80, 1},
  {"a slow disk", {}, 40, 0.5},
  {"no clipping", {clip = 0}, 40, 1},
  {"4 microbatches", {batch = 1, accum = 4}, 40, 2},
  {"8 microbatches", {batch = 1, accum = 8}, 40, 2},
  {"120 microbatches", {batch = 1, accum = 120}, 40, 2},
  {"recomputed", {activations = "recompute"}, 40, 2},
  {"kept, many tokens", {activations = "keep", batch = 16, tokens = 512}, 40, 2},
  {"bf16, masters", {dtype = "bf16"}, 40, 1},
  {"bf16, stochastic", {dtype = "bf16", rounding = "stochastic"}, 40, 1},
  {"wide, large vocabulary", {layers = 3, embd = 1024, heads = 16, vocab = 16384}, 50, 2},
}

-- Peaks in bytes: `slots` must be those of the plan, and the peak of all tensors at most that with
-- the tiles outside slots and the reserve for eager operations.
local function measure_plans()
  print(("%-24s %8s %9s %8s %9s %9s %7s %12s %12s %12s"):format("", "planned", "measured", "ratio",
    "planned", "measured", "ratio", "slots", "peak", "at most"))
  local far, wrong = {}, {}
  for _, c in ipairs(configurations) do
    if c[1]:find(cfg.only, 1, true) then
      local changes = with(small, c[2])
      local plan, found, _, _, remark = limited(process("run", changes), changes, c[3], c[4])
      local ratio, most = found.seconds / plan.seconds, plan.peak + plan.reserved
      local exact = found.slots == plan.slots and found.peak <= most
      print(("%-24s %6.3f s %7.3f s %8.3f %6.0f MB %6.0f MB %7.3f %12d %12d %12d%s%s"):format(
        c[1], plan.seconds, found.seconds, ratio, plan.moved / 1e6, found.moved / 1e6,
        found.moved / plan.moved, found.slots, found.peak, most, exact and "" or "  WRONG",
        remark))
      if math.abs(ratio - 1) > 0.1 then far[#far + 1] = c[1] end
      if not exact then wrong[#wrong + 1] = c[1] end
    end
  end
  print(("more than 10 %% from the planned seconds: %s"):format(
    #far > 0 and table.concat(far, ", ") or "none"))
  print(("another peak than planned: %s"):format(
    #wrong > 0 and table.concat(wrong, ", ") or "none"))
  os.exit(#wrong > 0 and 1 or 0)
end

local function measure_one()
  local bytes, plan = units.bytes, planned()
  local function row(name, ...)
    print(("%-24s %s"):format(name, string.format(...)))
    io.stdout:flush()
  end
  row("parameters", "%s, %s of parameters and moments", units.number(plan.parameters),
      bytes(plan.state))
  row("planning", "%.1f s", plan.took)
  row("memory of tensors", "%s planned (%s in slots)", bytes(plan.peak + plan.reserved),
      bytes(plan.slots))
  row("rest of the process", "%s planned", bytes(plan.rest))
  row("planned", "%.2f s a step, %s moved (lower bound %s, LRU %s), %s on the disk", plan.seconds,
      bytes(plan.moved), bytes(plan.least), bytes(plan.lru), bytes(plan.disk))
  local found = trained(function(name, text) row(name, "%s", text) end)
  row("measured", "%.2f s a step, %s moved, %s on the disk", found.seconds, bytes(found.moved),
      bytes(found.disk))
  row("measured / planned", "%.3f of the seconds, %.3f of the bytes", found.seconds / plan.seconds,
      found.moved / math.max(plan.moved, 1))
  row("speed", "%.2f tokens/s", rows * cfg.tokens / found.seconds)
  row("peak of tensors", "%s, and %s cached at the end", bytes(found.peak), bytes(found.cached))
  local planned_peak = plan.peak + plan.reserved + plan.rest
  row("peak of the process", "%s, %s planned: %.3f", bytes(found.resident), bytes(planned_peak),
      found.resident / planned_peak)
end

local measure = {speed = measure_speed, depth = measure_depth, plans = measure_plans}
if measure[cfg.mode] then return measure[cfg.mode]() end
use_memory()
if cfg.mode == "one" then
  measure_one()
elseif cfg.mode == "plan" then
  print(json.encode(planned()))
else
  local plan = planned()
  local found = trained(function() end)
  found.plan = plan
  print(json.encode(found))
end
