-- Compares random modules (random_modules.lua) in compiled microbatches with one eager pass, in a
-- process with GPUs, ranks, or less memory than it needs. Arguments: NAME=VALUE; first, count:
-- seeds; microbatches=4,8; ram=BYTES and disk=FOLDER: memory tiers; clip=1: clips the norm
-- afterwards. Prints what differs, and the number of modules.
local nn = require "nn"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local accumulation = require "accumulation"
local random_modules = require "random_modules"

local cfg = {first = 1, count = 6, microbatches = "4,8", shards = 0, clip = 0, disk = "", ram = 0,
             activations = "auto", ignored = "equal", cpus = 1, where = "auto", gpus = -1}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  cfg[name] = type(cfg[name]) == "number" and tonumber(value) or value
end

nn.devices {cpus = cfg.cpus, gpus = cfg.gpus >= 0 and cfg.gpus or nil}
nn.run_tasks_on(cfg.where)
if cfg.ram > 0 then nn.memory_tiers {ram = cfg.ram, disk = cfg.disk, disk_in_ram = true} end
nn.activations(cfg.activations)
if cfg.shards > 0 then nn.cluster {shards = cfg.shards} end

local function finish(model)
  if cfg.clip == 1 then nn.clip_grad_norm_(model, 0.05) end
end

local function one_pass(model, ids, targets)
  local loss = model(ids, targets)
  loss:backward()
  finish(model)
  return loss:detach()
end

local function compare(tally, m)
  local expected = accumulation.reference(m, random_modules.twin(m), one_pass)
  for microbatches in cfg.microbatches:gmatch "%d+" do
    tally:compare(m, microbatches .. " microbatches", function()
      return accumulation.differences(m, expected, function(model, ...)
        local loss = nn.accumulate(model, tonumber(microbatches), ...)
        finish(model)
        return loss
      end, "unguarded")
    end)
  end
end

local tally, seed = accumulation.tally "modules", cfg.first
while tally.modules < cfg.count do
  local is_unequal = random_modules.describe(seed).ignored == "unequal"
  if is_unequal == (cfg.ignored == "unequal") then compare(tally, random_modules.make(seed)) end
  seed = seed + 1
end
print(table.concat(tally.lines, "\n"))
print(tally:summary())
if cfg.ram > 0 then print(("moved %.0f"):format(nn.memory().disk.written)) end
