-- Trains a small GPT-2 and generates text, for tests/lua/gpus/training.lua. Prints the results of
-- every step, a checksum of every parameter and moment, and the generated tokens: none may depend
-- on devices. Arguments: NAME=VALUE; report=1 prints the memory and the transfers of GPUs,
-- profile=1 the profile of the steps, on standard error; profile=2 takes one of every second step.
local nn = require "nn"
local GPT2 = require "models.gpt2"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"

local cfg = {where = "auto", cpus = 0, gpus = -1, memory = 0, streams = 0, graphs = 0,
             scheduler = "", layers = 2, embd = 64, heads = 2, context = 32, vocab = 101, batch = 8,
             tile = 64, accum = 1, dropout = 0.1, dtype = "f32", gradients = "f32", steps = 3,
             eager = 1, tokens = 4, profile = 0, report = 0, ram = 0, disk = ".", slots = 0,
             budget = 0, keep = 0}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  cfg[name] = type(cfg[name]) == "number" and tonumber(value) or value
end

nn.devices {cpus = cfg.cpus, gpus = cfg.gpus >= 0 and cfg.gpus or nil, gpu_memory = cfg.memory,
            streams = cfg.streams > 0 and cfg.streams or nil, cuda_graphs = cfg.graphs > 0,
            scheduler = cfg.scheduler ~= "" and cfg.scheduler or nil}
nn.run_tasks_on(cfg.where)
nn.gradient_dtype(cfg.gradients)
if cfg.ram > 0 then
  nn.memory_tiers {gpu = cfg.slots > 0 and cfg.slots or nil, ram = cfg.ram, disk = cfg.disk,
                   disk_in_ram = true}
elseif cfg.slots > 0 then
  nn.memory_tiers {gpu = cfg.slots}
end
if cfg.budget > 0 then
  nn.memory_budget(cfg.budget)
end
if cfg.budget > 0 or cfg.keep > 0 then nn.activations "keep" end
nn.tiles {tokens = cfg.tile, vocab = 40}
nn.seed(1)
local model = GPT2 {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
                    context = cfg.context, dropout = cfg.dropout, dtype = cfg.dtype}
local optim = nn.AdamW(model, {lr = 1e-3, clip = 1, weight_decay = 0.1})
local function eager(ids, targets)
  optim:zero_grad()
  local loss = nn.accumulate(model, cfg.accum, ids, targets)
  return loss, optim:step()
end
local compiled = nn.compile(eager)

local function tokens()
  local options = {low = 0, high = cfg.vocab, axes = "batch,time"}
  return nn.uniform({cfg.batch, cfg.context}, options):to "i32"
end
local function train()
  for i = 1, cfg.steps do
    local function step()
      local loss, norm = (i <= cfg.eager and eager or compiled)(tokens(), tokens())
      print(("step %d %.17g %.17g"):format(i, loss:item(), norm:item()))
      io.flush()
    end
    if cfg.profile == 2 and i % 2 == 0 then nn.profile(step) else step() end
  end
end
if cfg.profile == 1 then io.stderr:write(tostring(nn.profile(train)), "\n") else train() end

checksums.print_all(model, optim)
if cfg.tokens > 0 then
  local ids, info = nn.generate(model, {{1, 2, 3}, {4}},
                                {tokens = cfg.tokens, seed = 1, logprobs = true})
  for i = 1, 2 do
    for j, logprob in ipairs(info.logprobs[i]) do
      print("token", ids[i][j], ("%.17g"):format(logprob))
    end
  end
end
if cfg.report > 0 then
  local memory = nn.memory()
  for i, gpu in ipairs(memory.gpus) do
    io.stderr:write(("GPU %d used %.0f of %.0f\n"):format(i - 1, gpu.used, gpu.limit))
  end
  io.stderr:write(("RAM used %.0f at most\n"):format(memory.peak))
  io.stderr:write(("moved %.0f\n"):format(memory.moved))
  io.stderr:write(("planned %.0f %.0f\n"):format(memory.ram_tier.read, memory.ram_tier.written))
  io.stderr:write(("disk %.0f %.0f\n"):format(memory.disk.read, memory.disk.written))
end
