-- Trains small models for tests/lua/tiers/models.lua and prints their results as
-- tier_training.lua does. Arguments: resident FILE: trains the models whose settings are the lines
-- of FILE one after the other in enough memory, and prints for each "model NUMBER", its results,
-- and the peak of its memory. tiered DISK SHARE PEAK NAME=VALUE...: trains one model in this share
-- of the bytes PEAK, or in the least memory with which it works if that is more, and prints last
-- what the budget was.
local files = require "nn.io.files"
local nn = require "nn"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local training = require "tier_training"

local function words(line)
  local out = {}
  for word in line:gmatch "%S+" do out[#out + 1] = word end
  return out
end

-- Frees what earlier models and plans left, which would count as memory in use.
local function collect()
  collectgarbage()
  collectgarbage()
  nn.sync()
end

local function resident(path)
  local number = 0
  for line in files.read(path):gmatch "[^\n]+" do
    number = number + 1
    print("model " .. number)
    collect()
    nn.reset_peak()
    training.run((training.read(words(line))))
    print(("peak %.0f"):format(nn.memory().peak))
  end
end

-- Plans the model with these tiers -> nil and the plan, or the bytes with which slots suffice.
local function least_if_refused(cfg, disk, ram)
  collect()
  nn.memory_tiers {ram = ram, disk = disk, disk_in_ram = true}
  local good, plan = pcall(training.plan, cfg)
  if good then return nil, plan end
  local bytes = tostring(plan):match "a plan for this program needs at least .- of RAM %((%d+) "
  return tonumber(bytes) or error(plan, 0)
end

local function tiered(disk, share, peak, given)
  local cfg = training.read(given)
  local wanted = math.floor(share * peak)
  local ram, refused = wanted, 0
  for _ = 1, 2 do               -- a larger budget has a larger reserve
    local least = least_if_refused(cfg, disk, ram)
    if not least then break end
    assert(least > ram, "refused with a sufficient number of bytes")
    ram, refused = least, refused + 1
  end
  if refused > 0 then
    local least, plan = least_if_refused(cfg, disk, ram - 1)
    local all_fits = not least and plan.tiers.levels[1].slots == 0
    local works = least == ram or all_fits
    assert(works, ("%d bytes work, %s are refused"):format(ram, least and "fewer" or "none"))
  end
  collect()
  nn.memory_tiers {ram = ram, disk = disk, disk_in_ram = true}
  training.run(cfg)
  local memory = nn.memory()
  print(("used wanted %.0f ram %.0f peak %.0f read %.0f written %.0f"):format(
    wanted, ram, memory.peak, memory.disk.read, memory.disk.written))
end

if arg[1] == "resident" then
  resident(arg[2])
else
  tiered(arg[2], tonumber(arg[3]), tonumber(arg[4]), {unpack(arg, 5)})
end
