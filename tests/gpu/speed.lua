-- Training speed of GPT-2 on this machine as one line of JSON: the counterpart of torch_speed.py.
--   nnlua tests/gpu/speed.lua model=gpt2 batch=16 tokens=1024 steps=10 [streams=2] [tile=16384]
--     [attention=cudnn] [gpu_gb=10] [graphs=true] [gradients=bf16]
local nn = require "nn"
local GPT2 = require "models.gpt2"

local cfg = nn.config({
  model = nn.field("gpt2", "gpt2 ... gpt2-xl, or custom with the sizes below"),
  layers = nn.field(2, "layers of a custom model", {min = 1}),
  heads = nn.field(2, "heads of a custom model", {min = 1}),
  embd = nn.field(64, "hidden size of a custom model", {min = 1}),
  vocab = nn.field(96, "vocabulary size of a custom model", {min = 1}),
  batch = nn.field(16, "sequences per step", {min = 1}),
  tokens = nn.field(1024, "tokens per sequence", {min = 1}),
  tile = nn.field(0, "tokens per tile; 0: automatic", {min = 0}),
  streams = nn.field(1, "streams per GPU", {min = 1}),
  graphs = nn.field(false, "start kernels as CUDA graphs"),
  attention = nn.field("auto", "attention kernels", {choices = {"auto", "cudnn", "nnlua"}}),
  gradients = nn.field("f32", "dtype of gradients", {choices = {"f32", "bf16"}}),
  gpu_gb = nn.field(0, "GB of the GPU's memory for planned tensors, the others in RAM; 0: no plan",
                    {min = 0}),
  dtype = nn.field("bf16", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  steps = nn.field(10, "measured steps", {min = 1}),
  warmup = nn.field(4, "steps before the measurement", {min = 1}),
  product = nn.field(8192, "side of the matrices that measure the product rate", {min = 1}),
  ram_gb = nn.field(0, "largest memory budget for RAM in GB; 0: automatic", {min = 0}),
  where = nn.field("gpu", "device kind that runs the tasks", {choices = {"gpu", "cpu"}}),
}, arg)

local per_step = cfg.batch * cfg.tokens
nn.devices {streams = cfg.streams, cuda_graphs = cfg.graphs}
nn.run_tasks_on(cfg.where)
dofile(arg[0]:match "^(.-)[^/]*$" .. "ram.lua")(cfg.ram_gb)
nn.attention_backend(cfg.attention)
nn.gradient_dtype(cfg.gradients)
if cfg.gpu_gb > 0 then nn.memory_tiers {gpu = cfg.gpu_gb * 1e9} end
nn.seed(1)
nn.tiles {tokens = cfg.tile}

local function median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

-- FLOP/s of a product in this dtype, the best of ten.
local function product_rate()
  local n, best = cfg.product, math.huge
  local a = nn.rand({n, n}):to(cfg.dtype):retile {0, 0}
  for _ = 1, 10 do
    nn.sync()
    local start = nn.now()
    local c = a:matmul(a)
    nn.sync()
    best = math.min(best, nn.now() - start)
    c:release()
  end
  return 2 * n ^ 3 / best
end

local size = cfg.model ~= "custom" and GPT2.size(cfg.model)
  or {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
      context = cfg.tokens}
size.dtype = cfg.dtype
local model = GPT2(size)
local optim = nn.AdamW(model, {lr = 3e-4, beta2 = 0.95, weight_decay = 0.1, clip = 1})
local step = nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = model(ids, targets)
  loss:backward()
  return loss, optim:step()
end)
local function tokens()
  local ids = nn.uniform({cfg.batch, cfg.tokens},
                         {low = 0, high = model.config.vocab, axes = "batch,time"})
  return ids:to "i32"
end
local ids, targets = tokens(), tokens()
for _ = 1, cfg.warmup do step(ids, targets) end
nn.sync()
local times = {}
for i = 1, cfg.steps do
  local start = nn.now()
  step(ids, targets):item()
  nn.sync()
  times[i] = nn.now() - start
end
local seconds, peak = median(times), nn.memory().in_use
for _, gpu in ipairs(nn.memory().gpus) do peak = math.max(peak, gpu.used) end
local profiled = 2
local profile = nn.profile(function() for _ = 1, profiled do step(ids, targets) end end)
local kinds, busy = {}, 0
for _, k in ipairs(profile.kernels) do
  kinds[k.name] = {calls = k.calls / profiled, ms = k.seconds / profiled * 1e3}
  busy = busy + k.seconds / profiled
end
local flops = model:flops_per_token(cfg.tokens) * per_step / seconds
local rate = product_rate()
print(require("cjson").encode {
  tokens_per_s = per_step / seconds, ms_per_step = seconds * 1e3, flops_per_s = flops,
  product_flops_per_s = rate, peak_bytes = peak, parameters = model:count(),
  loss = step(ids, targets):item(), tasks = step:info().tasks, busy = busy / seconds,
  host_us_per_task = profile.replay_seconds * 1e6 / profile.replayed_tasks, kinds = kinds,
})
