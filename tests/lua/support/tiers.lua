-- Trains a small model for a few steps and prints the results of every step and a checksum of every
-- parameter and moment, for tests/lua/tiers/results.lua. Arguments: NAME=VALUE; ram=BYTES plans the
-- memory.
local nn = require "nn"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local training = require "tier_training"

local cfg = training.read(arg)
if cfg.memory > 0 then nn.memory_budget(cfg.memory) end
if cfg.ram > 0 then nn.memory_tiers {ram = cfg.ram, disk = cfg.disk, disk_in_ram = true} end
training.run(cfg)
io.stderr:write(("peak %.0f read %.0f written %.0f\n"):format(
  nn.memory().peak, nn.memory().disk.read, nn.memory().disk.written))
