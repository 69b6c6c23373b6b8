-- The cost of everything in a step except kernels and copies: trains GPT-2 in bf16 on an emulated
-- GPU whose kernels take no time (tests/emulated/runtime). Prints a line of JSON: tasks and
-- temporaries of a step (StarPU invalidates each temporary), tasks by kernel, and the microseconds
-- of a step: until it is submitted, and until it has run, each the median and the least.
--   LD_LIBRARY_PATH=build/emulated-gpus EMULATED_CUDA="gpus=1 memory=80000 instant=1" \
--     NNLUA_CUDNN=none nnlua tests/gpu/driver.lua [model=gpt2] [batch=16] [tokens=1024] [steps=5] \
--     [graphs=true]
local nn = require "nn"
local GPT2 = require "models.gpt2"

local cfg = nn.config({
  model = nn.field("gpt2", "gpt2 ... gpt2-xl"),
  batch = nn.field(16, "sequences per step", {min = 1}),
  tokens = nn.field(1024, "tokens per sequence", {min = 1}),
  steps = nn.field(5, "measured steps", {min = 1}),
  rounding = nn.field("nearest", "of weights", {choices = {"nearest", "stochastic"}}),
  graphs = nn.field(false, "start kernels as CUDA graphs"),
}, arg)

local size = GPT2.size(cfg.model)
size.dtype = "bf16"
nn.devices {cuda_graphs = cfg.graphs}
nn.activations "keep"
local model = GPT2(size)
local optim = nn.AdamW(model, {lr = 3e-4, weight_decay = 0.1, clip = 1, rounding = cfg.rounding})
local step = nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = model(ids, targets)
  loss:backward()
  return loss, optim:step()
end)
local function tokens()
  return nn.zeros({cfg.batch, cfg.tokens}, {dtype = "i32", axes = "batch,time"})
end
local ids, targets = tokens(), tokens()
for _ = 1, 2 do step(ids, targets) end
nn.sync()

local submitted, run = {}, {}
for i = 1, cfg.steps do
  local start = nn.now()
  step(ids, targets)
  submitted[i] = nn.now() - start
  nn.sync()
  run[i] = nn.now() - start
end
local function median_and_least(list)
  table.sort(list)
  return {list[math.floor((#list + 1) / 2)] * 1e6, list[1] * 1e6}
end
local info, kinds, persistent = step:info(), {}, 0
for _, list in ipairs {model:parameters(), optim:state()} do
  for _, entry in ipairs(list) do
    local tiles = 1
    for axis = 1, #entry.tensor.shape do tiles = tiles * (#entry.tensor:cuts(axis) - 1) end
    persistent = persistent + tiles
  end
end
local profile = nn.profile(function() step(ids, targets) end)
for _, kernel in ipairs(profile.kernels) do kinds[kernel.name] = kernel.calls end
print(require("cjson").encode {
  model = cfg.model, tasks = info.tasks, temporaries = info.tiles - persistent, kinds = kinds,
  submission_us = median_and_least(submitted), step_us = median_and_least(run),
})
