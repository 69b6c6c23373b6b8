-- Trains the model of ordinary_model.lua and prints the loss and the norm of the gradient of every
-- step, and a checksum of every parameter, buffer and moment at the end: none may depend on how the
-- steps are computed. Arguments: NAME=VALUE; report=1 prints on standard error what moved.
local nn = require "nn"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"
local ordinary = require "ordinary_model"

local cfg = {how = "compiled", steps = 3, rows = 8, accum = 1, clip = 1, dtype = "f32", dropout = 0,
             rounding = "nearest", gradients = "f32", optim = "AdamW", recurrent = "GRU",
             groups = 1, activations = "keep", tile = 0, large = 0, buffer = 1, skip = 0,
             average = 0, hooks = 0, between = 0, ram = 0, disk = "", slots = 0, shards = 0,
             shard = "optimizer", graphs = 0, where = "auto", save = "", resume = "", profile = 0,
             report = 0}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  assert(cfg[name], word)
  cfg[name] = type(cfg[name]) == "number" and tonumber(value) or value
end

nn.devices {cuda_graphs = cfg.graphs > 0}
nn.run_tasks_on(cfg.where)
nn.gradient_dtype(cfg.gradients)
nn.activations(cfg.activations)
local slots = cfg.slots > 0 and cfg.slots or nil
if cfg.ram > 0 then
  nn.memory_tiers {gpu = slots, ram = cfg.ram, disk = cfg.disk, disk_in_ram = true}
elseif slots then
  nn.memory_tiers {gpu = slots}
end
if cfg.shards > 0 then nn.cluster {shards = cfg.shards, shard = cfg.shard} end
if cfg.tile > 0 then nn.tiles {tokens = cfg.tile, vocab = cfg.tile} end
nn.seed(5)

local large = cfg.large > 0
local model = ordinary.new {dtype = cfg.dtype, dropout = cfg.dropout, large = large,
                            buffer = cfg.buffer > 0, recurrent = cfg.recurrent}
local function optimizer()
  local options = {lr = 1e-2, clip = cfg.clip, weight_decay = 0.1}
  if cfg.optim == "AdamW" then options.rounding = cfg.rounding end
  if cfg.skip > 0 then options.skip_nonfinite = true end
  if cfg.groups < 2 then return nn[cfg.optim](model, options) end
  local some, others = {}, {}
  for i, p in ipairs(model:parameters()) do
    if p.tensor.requires_grad then
      table.insert(i % 2 == 0 and some or others, p.tensor)
    end
  end
  return nn[cfg.optim]({{params = some, weight_decay = 0}, {params = others}}, options)
end
local optim = optimizer()

-- Moving averages of the weights, which every step updates.
local averages = {}
for i, p in ipairs(cfg.average > 0 and model:parameters() or {}) do
  averages[i] = {path = "average of " .. p.path, tensor = p.tensor:detach():clone(), of = p.tensor}
end
local function average()
  nn.no_grad(function()
    for _, a in ipairs(averages) do a.tensor:copy_(a.tensor * 0.9 + a.of * 0.1) end
  end)
end

if cfg.hooks > 0 then
  model.conv:register_forward_hook(function(_, _, y) return y * 0.5 end)
  model.norm:register_full_backward_hook(function(_, gradient) return gradient * 2 end)
end

local function step(ids, targets)
  optim:zero_grad()
  local loss = nn.accumulate(model, cfg.accum, ids, targets)
  local norm = optim:step()
  average()
  return loss, norm
end
local run = cfg.how == "eager" and step or nn.compile(step)
-- Another function of the script, and ops outside of any, which use the same tensors.
local other = nn.compile(function(ids) return nn.no_grad(model, ids):square():mean() end)

local function train(first, last)
  for number = first, last do
    optim.lr = 1e-2 / number
    local ids, targets = ordinary.batch(number, cfg.rows, large)
    local loss, norm = run(ids, targets)
    print(("step %d %.17g %.17g"):format(number, loss:item(), norm:item()))
    if cfg.between > 0 then
      print(("between %.17g %.17g"):format(other(ids):item(), model.shift:sum():item()))
    end
  end
end

local first = 1
if cfg.resume ~= "" then
  local checkpoint = nn.open_checkpoint(cfg.resume)
  checkpoint:restore {model = model, optim = optim}
  first = checkpoint.state.step + 1
end
if cfg.profile > 0 then
  io.stderr:write(tostring(nn.profile(train, first, cfg.steps)), "\n")
else
  train(first, cfg.steps)
end
if cfg.save ~= "" then
  nn.save_checkpoint(cfg.save, {step = cfg.steps, model = model, optim = optim})
end

-- Tensors of which each rank may hold a part.
local function whole(x)
  return cfg.shards > 0 and nn.compile(function() return x:clone() end)() or x
end
local function print_all(list)
  for _, entry in ipairs(list) do print(entry.path, checksums.of(whole(entry.tensor))) end
end
print_all(model:state())
print_all(averages)
if cfg.shards == 0 then print_all(optim:state()) end
if cfg.report > 0 then
  local memory = nn.memory()
  io.stderr:write(("peak %.0f\n"):format(memory.peak))
  if cfg.ram > 0 then
    io.stderr:write(("disk %.0f %.0f\n"):format(memory.disk.read, memory.disk.written))
  end
  if slots then io.stderr:write(("slots %.0f\n"):format(memory.ram_tier.written)) end
end
