-- Speed of training with less memory than the model needs, beside training with enough memory. For
-- each budget of RAM and each rate of the disk: tokens per second beside the roofline, the bytes
-- moved beside their lower bound, and what the plan predicted. A disk's rate is given as the ratio
-- of the computing time to the least transfer time, so at 1 and less the disk is the limit.
--   nnlua recipes/bench_tiers.lua model=gpt2 batch=4 tokens=256 budgets=25,50 ratios=0.5,1,2,4
-- Each run is a process of its own. Losses must be those of the run with enough memory, to the bit.

local json = require "cjson"
local nn = require "nn"
local training = require "nn.plan.training"
local GPT2 = require "models.gpt2"

local cfg = nn.config({
  model = nn.field("gpt2",
    "gpt2, gpt2-medium, gpt2-large, gpt2-xl, or custom with the sizes below"),
  layers = nn.field(12, "layers of a custom model", {min = 1}),
  heads = nn.field(12, "heads of a custom model", {min = 1}),
  embd = nn.field(768, "hidden size of a custom model", {min = 1}),
  vocab = nn.field(50257, "vocabulary size of a custom model", {min = 1}),
  batch = nn.field(4, "sequences per microbatch", {min = 1}),
  accum = nn.field(1, "microbatches per step", {min = 1}),
  tokens = nn.field(256, "tokens per sequence", {min = 1}),
  clip = nn.field(1, "largest gradient norm; 0: no clipping", {min = 0, real = true}),
  budgets = nn.field("25,50", "RAM in percent of the parameters and moments"),
  ratios = nn.field("0.5,1,2,4", "computing time over transfer time; 0: the disk as it is"),
  disk = nn.field("/tmp", "folder of the disk"),
  steps = nn.field(3, "measured steps", {min = 1}),
  ram = nn.field(0, "of a run of this benchmark: bytes", {min = 0, real = true}),
  rate = nn.field(0, "of a run of this benchmark: bytes per second", {min = 0, real = true}),
  mode = nn.field("all", "of a run of this benchmark", {choices = {"all", "plan", "run"}}),
}, arg)

local rows = cfg.batch * cfg.accum

local function build()
  local size = cfg.model ~= "custom" and GPT2.size(cfg.model)
    or {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab}
  size.context = math.max(size.context or 0, cfg.tokens)
  local model = GPT2(size)
  local optim = nn.AdamW(model, {lr = 1e-4, weight_decay = 0.1, clip = cfg.clip})
  return model, optim, nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = nn.accumulate(model, cfg.accum, ids, targets)
    return loss, optim:step()
  end)
end

-- The plan's bytes and seconds of a step.
local function planned()
  local plan = training.step(build, rows, cfg.tokens, true, cfg.accum)
  local tiers = plan.tiers or {loaded = {total = 0}, stored = {total = 0}, least_moved = 0,
                               lru_moved = 0, seconds = plan.seconds}
  return {moved = tiers.loaded.total + tiers.stored.total, least = tiers.least_moved,
          lru = tiers.lru_moved, seconds = tiers.seconds}
end

local function run()
  local model, _, step = build()
  local function ids()
    return nn.uniform({rows, cfg.tokens}, {low = 0, high = model.config.vocab,
                                           axes = "batch,time"}):to("i32")
  end
  local batches, losses, times = {}, {}, {}
  for i = 1, cfg.steps + 2 do batches[i] = {ids(), ids()} end
  nn.sync()
  local before, start
  -- Steps follow each other as in training: a step may begin while the one before ends.
  for i, batch in ipairs(batches) do
    losses[i] = step(batch[1], batch[2])
    if i > 1 then losses[i - 1] = ("%.17g"):format(losses[i - 1]:item()) end
    local now = nn.now()
    if i > 3 then times[#times + 1] = now - start end
    if i == 3 then before = nn.memory().disk end
    start = now
  end
  local disk = nn.memory().disk
  losses[#losses] = ("%.17g"):format(losses[#losses]:item())
  local sum = 0
  for _, seconds in ipairs(times) do sum = sum + seconds end
  return {losses = losses, seconds = sum / #times, peak = nn.memory().peak,
          moved = (disk.read + disk.written - before.read - before.written) / #times,
          state = 3 * 4 * model:count()}           -- parameters and moments, f32
end

nn.seed(1)
if cfg.mode ~= "all" then
  if cfg.ram > 0 then
    nn.memory_tiers {ram = cfg.ram, disk = cfg.disk, disk_rate = cfg.rate > 0 and cfg.rate or nil}
  end
  print(json.encode((cfg.mode == "plan" and planned or run)()))
  return
end

-- Runs this benchmark in a process of its own -> its result.
local function process(settings)
  local words = {}
  for _, word in ipairs(arg) do words[#words + 1] = ("'%s'"):format(word:gsub("'", "'\\''")) end
  local pipe = io.popen(("/proc/$PPID/exe '%s' %s %s"):format(arg[0], table.concat(words, " "),
                                                              settings))
  local text = pipe:read "*a"
  pipe:close()
  local found = text:match "({.*})"
  return found and json.decode(found) or nn.fail("a run with %s failed: %s", settings, text)
end

local function numbers(text)
  local out = {}
  for word in text:gmatch "[^,]+" do out[#out + 1] = tonumber(word) end
  return out
end

local resident = process "mode=run"
local tokens = rows * cfg.tokens
print(("%s, %d x %d x %d tokens per step, clip %g: %.1f tokens/s with enough memory (peak %.2f GB)")
  :format(cfg.model, cfg.accum, cfg.batch, cfg.tokens, cfg.clip, tokens / resident.seconds,
          resident.peak / 1e9))
print(("%6s %6s %10s %9s %9s %9s %8s %8s %8s %10s"):format("RAM", "ratio", "disk", "tokens/s",
  "speed", "roofline", "moved", "/ least", "/ LRU", "predicted"))
for _, percent in ipairs(numbers(cfg.budgets)) do
  local ram = math.floor(resident.state * percent / 100)
  for _, ratio in ipairs(numbers(cfg.ratios)) do
    local least = process(("mode=plan ram=%d"):format(ram)).least
    local rate = ratio > 0 and ratio * least / resident.seconds or 0
    local settings = ("ram=%d rate=%d"):format(ram, rate)
    local plan, found = process("mode=plan " .. settings), process("mode=run " .. settings)
    for i, loss in ipairs(found.losses) do
      if loss ~= resident.losses[i] then
        nn.fail("step %d: a loss of %s, %s with enough memory", i, loss, resident.losses[i])
      end
    end
    local speed = resident.seconds / found.seconds
    print(("%5.0f%% %6g %7.2f GB %9.1f %9.3f %9.3f %5.2f GB %8.2f %8.2f %10.3f"):format(
      percent,
      ratio, rate / 1e9, tokens / found.seconds, speed,
      ratio > 0 and speed / math.min(1, ratio) or 0,
      found.moved / 1e9, found.moved / least, found.moved / plan.lru,
      found.seconds / plan.seconds))
  end
end
