-- Speed of a training step of GPT-2 or a Llama on this machine: steps on random tokens, compared
-- with the machine's own matrix-product rate.
--   nnlua recipes/bench_gpt2.lua model=gpt2 batch=4 tokens=256 steps=5 [--json]
--   nnlua recipes/bench_gpt2.lua model=llama-15m batch=16 dtype=bf16

local nn = require "nn"
local GPT2, Llama = require "models.gpt2", require "models.llama"
local reference_gflops = require("nn.measure.profile").reference_gflops
local thousands = require("nn.core.show").thousands

local json = false
local options = {}
for _, word in ipairs(arg) do
  if word == "--json" then json = true else options[#options + 1] = word end
end
local cfg = nn.config({
  model = nn.field("gpt2",
    "gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-15m, llama-110m, or custom: a GPT-2 of the "
    .. "sizes below"),
  layers = nn.field(12, "layers of a custom model", {min = 1}),
  heads = nn.field(12, "heads of a custom model", {min = 1}),
  embd = nn.field(768, "hidden size of a custom model", {min = 1}),
  vocab = nn.field(50257, "vocabulary size of a custom model", {min = 1}),
  dtype = nn.field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  batch = nn.field(4, "sequences per step", {min = 1}),
  tokens = nn.field(256, "tokens per sequence", {min = 1}),
  tile = nn.field(0, "tokens per tile; 0: automatic", {min = 0}),
  steps = nn.field(5, "measured steps", {min = 1}),
  warmup = nn.field(2, "steps before the measurement", {min = 1}),
  seed = nn.field(1, "seed of weights and tokens"),
  plan = nn.field(false, "only report what a step would cost and whether it fits"),
}, options)

local llamas = {           -- as llama2.c's stories15M and stories110M
  ["llama-15m"] = {layers = 6, heads = 6, embd = 288, inner = 768, tied = true, context = 256},
  ["llama-110m"] = {layers = 12, heads = 12, embd = 768, inner = 2048, tied = true, context = 1024},
}

local function model_config()
  if cfg.model ~= "custom" then
    local size = llamas[cfg.model] or GPT2.size(cfg.model)
    size.context = math.max(size.context, cfg.tokens)
    size.dtype = cfg.dtype
    return size
  end
  return {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
          context = cfg.tokens, dtype = cfg.dtype}
end

nn.seed(cfg.seed)
nn.tiles {tokens = cfg.tile}
local cpus, gpus = nn.workers()
local function build()
  local model = (llamas[cfg.model] and Llama or GPT2)(model_config())
  local optim = nn.AdamW(model, {lr = 1e-4, weight_decay = 0.1, clip = 1})
  return model, optim, nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
end
if cfg.plan then
  print(nn.plan_step(function(batch)
    local model, optim, step = build()
    local ids = nn.zeros({batch, cfg.tokens}, {dtype = "i32", axes = "batch,time"})
    return function() return step(ids, ids) end, {weights = model, optimizer = optim, other = {ids}}
  end, {batch = cfg.batch, tokens = cfg.batch * cfg.tokens}))
  return
end
local model, _, step = build()
local function random_tokens()
  local vocab = model.config.vocab
  return nn.uniform({cfg.batch, cfg.tokens}, {low = 0, high = vocab, axes = "batch,time"}):to("i32")
end

local ids, targets = random_tokens(), random_tokens()
local loss
for _ = 1, cfg.warmup do loss = step(ids, targets) end
nn.sync()
local sgemm_before = nn.product_gflops()
local times = {}
for i = 1, cfg.steps do
  local start = nn.now()
  loss = step(ids, targets)
  loss:item()
  nn.sync()
  times[i] = nn.now() - start
end
table.sort(times)
local seconds = times[math.floor((#times + 1) / 2)]
local peak = nn.memory().peak
local tokens = cfg.batch * cfg.tokens
local flops = model:flops_per_token(cfg.tokens) * tokens
local sgemm = math.max(sgemm_before, reference_gflops(2048, "f32", flops / seconds / 1e9))
local profile = nn.profile(function() for _ = 1, 2 do step(ids, targets) end end)

local function peak_rss_mb()
  local status = assert(io.open("/proc/self/status")):read("*a")
  return tonumber(status:match "VmHWM:%s*(%d+)") / 1024
end
local kinds = {}
for _, k in ipairs(profile.kernels) do
  kinds[k.name] = {
    calls = k.calls / 2, ms = k.seconds / 2 * 1e3,
    gflops = k.flops / k.seconds / 1e9, gb_per_s = k.bytes / k.seconds / 1e9,
    share = k.seconds / profile.seconds / (cpus + gpus),
  }
end
local per_task = 1e6 / profile.replayed_tasks
local result = {
  model = cfg.model, parameters = model:count(), workers = cpus, gpus = gpus,
  batch = cfg.batch, tokens = cfg.tokens,
  ms_per_step = seconds * 1e3, tokens_per_s = tokens / seconds,
  gflops = flops / seconds / 1e9, sgemm_gflops = sgemm, ratio = flops / seconds / 1e9 / sgemm,
  loss = loss:item(), tasks_per_step = step:info().tasks,
  submit_us_per_task = profile.replay_seconds * per_task,
  starpu_us_per_task = profile.starpu_seconds * per_task,
  own_us_per_task = (profile.replay_seconds - profile.starpu_seconds) * per_task,
  peak_tiles_mb = peak / 2 ^ 20, peak_rss_mb = peak_rss_mb(), kinds = kinds,
}
if json then
  print(require("cjson").encode(result))
  os.exit(0)
end

print(("%s, %s parameters, %d x %d tokens per step, %d CPU workers, %d GPUs"):format(
  cfg.model, thousands(result.parameters), cfg.batch, cfg.tokens, cpus, gpus))
print(("%-28s %10.1f"):format("ms per step (median)", result.ms_per_step))
print(("%-28s %10.1f"):format("tokens/s", result.tokens_per_s))
print(("%-28s %10.1f  (6 N + 12 L C T per token)"):format("GFLOP/s", result.gflops))
print(("%-28s %10.1f  (2048^3 on every worker)"):format("sgemm GFLOP/s", sgemm))
print(("%-28s %10.3f"):format("ratio", result.ratio))
print(("%-28s %10d"):format("tasks per step", result.tasks_per_step))
print(("%-28s %10.2f  (StarPU %.2f, own %.2f)"):format(
  "submission, us per task", result.submit_us_per_task, result.starpu_us_per_task,
  result.own_us_per_task))
print(("%-28s %10.1f"):format("peak tile memory, MB", result.peak_tiles_mb))
print(("%-28s %10.1f"):format("peak RSS, MB", result.peak_rss_mb))
print(("\n%-24s %8s %11s %10s %8s %7s"):format(
  "kernel", "per step", "ms per step", "GFLOP/s", "GB/s", "share"))
for _, k in ipairs(profile.kernels) do
  local kind = kinds[k.name]
  print(("%-24s %8d %11.1f %10.1f %8.1f %6.1f%%"):format(
    k.name, kind.calls, kind.ms, kind.gflops, kind.gb_per_s, 100 * kind.share))
end
