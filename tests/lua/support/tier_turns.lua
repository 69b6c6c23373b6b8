-- Trains a small model, with other programs in turns between its steps, and prints the results of
-- all, for tests/lua/tiers/turns.lua. Arguments: NAME=VALUE, of tier_training.lua and, after how
-- many steps each of these is run: sample, validate, save, plain (generation without compiled
-- functions), average, gradients, second (functions of the script, each with a state of its own).
-- gpu=BYTES ram=BYTES plan the memory; one of them may be 0.
local files = require "nn.io.files"
local nn = require "nn"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local training = require "tier_training"

local cfg, given = training.read(arg)
local tiers = {gpu = tonumber(given.gpu) or 0, ram = cfg.ram}
if tiers.gpu > 0 or tiers.ram > 0 then
  local disk = tiers.ram > 0 and cfg.disk or nil
  nn.memory_tiers {gpu = tiers.gpu > 0 and tiers.gpu or nil, ram = disk and tiers.ram, disk = disk,
                   disk_in_ram = disk and true or nil, plan_seconds = 0.05}
end
local several = nn.ranks().ranks > 1
local parts = several and cfg.shard == "weights"     -- of each weight, on different ranks

local function say(name, step, ...)
  local words = {name, step}
  for _, number in ipairs {...} do words[#words + 1] = ("%.17g"):format(number) end
  print(table.concat(words, " "))
end

local uses = {}                  -- uses.NAME(model, optim) -> f(step)

local function generation(name, model, tokens, options)
  return function(step)
    options.tokens, options.seed, options.logprobs = tokens, step, true
    local rows, info = nn.generate(model, {{1, 2, 3}, {4}}, options)
    for i, ids in ipairs(rows) do
      print(name, step, table.concat(ids, ","))
      say(name, step, unpack(info.logprobs[i]))
    end
  end
end

function uses.sample(model) return generation("sample", model, 4, {}) end

-- Beyond the context, every token reads the last ones again, without caches.
function uses.plain(model)
  return function(step)
    local compute = parts and nn.compile(function(x) return model(x) end) or model
    nn.no_grad(function()
      local logits = compute(nn.tensor({{1, 2, step, 4}}, {dtype = "i32"}))
      say("plain", step, logits:to("f32"):sum():item(), logits:to("f32"):max():item())
    end)
  end
end

function uses.validate(model)
  local loader = {}
  function loader:windows()
    local batch = 0
    return function()
      batch = batch + 1
      if batch > 2 then return nil end
      return training.ids(cfg, 50 + batch), training.ids(cfg, 51 + batch), cfg.batch
    end, 2, 2
  end
  return function(step) say("validation", step, nn.evaluate(model, loader, 2)) end
end

function uses.save(model, optim)
  local path = given.folder .. "/saved.safetensors"            -- rank 0 writes it
  return function(step)
    local tensors = {}
    for _, part in ipairs {model, optim} do
      for _, entry in ipairs(part:state()) do tensors[entry.path] = entry.tensor end
    end
    nn.save_safetensors(path, tensors)
    if nn.ranks().rank == 0 then
      print(("save %d %08x"):format(step, files.crc32(files.read(path))))
    end
  end
end

-- Averages of all weights, which persist, as their own program changes them.
function uses.average(model)
  local averages = {}
  for i, p in ipairs(model:parameters()) do averages[i] = nn.zeros(unpack(p.tensor.shape)) end
  local f = nn.compile(function()
    local sum = nn.zeros(1)
    for i, p in ipairs(model:parameters()) do
      averages[i]:add_((p.tensor:to "f32" - averages[i]) * 0.25)
      sum = sum + averages[i]:abs():sum():reshape(1)
    end
    return sum:sum()
  end)
  return function(step) say("average", step, nn.no_grad(f):item()) end
end

-- Gradients of other microbatches, without an update: from four of them on, a loop.
function uses.gradients(model, optim)
  local f = nn.compile(function(x, y)
    optim:zero_grad()
    local loss, sum = nn.accumulate(model, cfg.batch, x, y), nil
    for _, p in ipairs(model:parameters()) do
      local part = p.tensor.grad:to("f32"):abs():sum()
      sum = sum and sum + part or part
    end
    optim:zero_grad()
    return loss, sum
  end)
  return function(step)
    local loss, sum = f(training.ids(cfg, step + 7), training.ids(cfg, step + 8))
    say("gradients", step, loss:item(), sum:item())
  end
end

-- Another optimizer, with clipping, so that its updates may wait for its next run.
function uses.second(model)
  local optim = nn.SGD(model, {lr = 1e-3, momentum = 0.9, clip = 1})
  local f = nn.compile(function(x, y)
    optim:zero_grad()
    local loss = model(x, y)
    loss:backward()
    return loss, optim:step()
  end)
  return function(step)
    local loss, norm = f(training.ids(cfg, step + 3), training.ids(cfg, step + 4))
    say("second", step, loss:item(), norm:item())
  end
end

-- The programs in the order in which they are given.
training.run(cfg, function(model, optim)
  local turns = {}
  for _, word in ipairs(arg) do
    local name, every = word:match "^(%l+)=(%d+)$"
    local use = uses[name]
    if use then turns[#turns + 1] = {every = tonumber(every), run = use(model, optim)} end
  end
  return function(step)
    for _, turn in ipairs(turns) do
      if step % turn.every == 0 then turn.run(step) end
    end
  end
end, function(model, optim) uses.save(model, optim)(cfg.steps + 1) end)   -- also what ranks share
local memory = nn.memory()
io.stderr:write(("peak %.0f moved %.0f\n"):format(
  memory.peak, memory.disk.written + (memory.ram_tier and memory.ram_tier.written or 0)))
