-- The settings of a recipe for its devices and memory: GPUs, a budget, tiers of memory, and
-- recomputation.
local budget = require "nn.base.budget"
local config = require "nn.io.config"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local units = require "nn.base.units"

local M = {}

--- nn.memory_fields() -> the settings devices.gpus, devices.cuda_graphs, devices.matmul_precision,
--- checks, memory_gb, memory.activations, memory.ram, memory.disk, memory.disk_rate,
--- memory.disk_in_ram, memory.gpu and memory.plan_seconds, for a recipe's schema. nn.run_fields
--- contains them; other recipes call nn.use_memory.
---     nn.config({nn.memory_fields()}, {"memory.ram=6GB"}).memory.ram  --> "6GB"
function M.memory_fields()
  local field = config.field
  return {
    devices = {
      gpus = field(-1, "GPUs to use; -1: all that there are", {min = -1}),
      cuda_graphs = field(false, "start the kernels of a step as CUDA graphs"),
      matmul_precision = field("highest", "f32 products on GPUs; high rounds their operands to "
                               .. "TF32, which is several times as fast",
                               {choices = {"highest", "high"}}),
    },
    checks = field("off", "tiles: compare the checksum of each tile wherever it is read, so that a "
                   .. "wrong value is an error; slower", {choices = {"off", "tiles"}}),
    memory_gb = field(0, "memory budget in GB; 0: 90 % of the available memory",
                      {min = 0, real = true}),
    memory = {
      activations = field("auto", "activations for the backward pass (auto: recompute only what "
                          .. "does not fit)", {choices = {"auto", "keep", "recompute"}}),
      ram = field("", 'memory of tensors, such as "6GB", if memory.disk is set; empty: memory_gb'),
      disk = field("", "folder for what does not fit into RAM, or several on disks of equal rate, "
                   .. "such as /nvme0,/nvme1; empty: all must fit", {path = "list"}),
      disk_in_ram = field(false, "allow a folder memory.disk that is in RAM (tmpfs), for tests"),
      disk_rate = field("", 'most bytes per second of each disk, such as "500MB"; empty: no limit'),
      gpu = field("", 'memory of one GPU for compiled steps, such as "20GB"; what does not fit is '
                  .. "in RAM, and with memory.disk on the disk below; empty: chosen if a step "
                  .. "exceeds the only GPU"),
      plan_seconds = field(4, "most seconds of the search for a plan with memory.disk or "
                           .. "memory.gpu; 0: no limit", {min = 0, real = true}),
    },
  }
end

-- The bytes of a setting, such as "6GB"; nil if it is empty.
local function bytes_of(memory, name)
  local given = memory[name]
  local bytes = units.read_bytes(given)
  if bytes or given == "" then return bytes end
  if units.read_bytes(given .. "B") then
    lib.fail("'memory.%s' needs a unit, such as %sGB or %sMB, not '%s'", name, given, given, given)
  end
  lib.fail("'memory.%s' must be a size such as 500MB or 6GB, not '%s'", name, given)
end

--- use_disk(memory, ram): sets the tiers of cfg.memory with a disk, and `ram` bytes above it.
function M.use_disk(memory, ram)
  budget.memory_tiers {gpu = bytes_of(memory, "gpu"), ram = ram, disk = memory.disk,
                       disk_rate = bytes_of(memory, "disk_rate"), disk_in_ram = memory.disk_in_ram,
                       plan_seconds = memory.plan_seconds}
end

--- nn.use_memory(cfg) sets the checks of tiles, the GPUs, CUDA graphs and the precision of f32
--- products on them, the memory budget or the tiers of nn.memory_tiers, and the choice of
--- nn.activations, from the settings of nn.memory_fields. Call it before creating tensors. Errors:
--- as nn.checks, nn.devices and nn.memory_tiers; memory.ram or memory.disk_rate without
--- memory.disk.
---     nn.use_memory(nn.config({nn.memory_fields()}, {}))
function M.use_memory(cfg)
  for name in pairs(M.memory_fields()) do
    if type(cfg) ~= "table" or cfg[name] == nil then
      lib.misuse("use_memory: the settings have no '%s'; create them with "
                 .. "nn.config({nn.memory_fields()}, arg)", name)
    end
  end
  local devices, memory = cfg.devices, cfg.memory
  if cfg.checks ~= "off" then engine.checks(cfg.checks) end
  if devices.gpus >= 0 or devices.cuda_graphs then
    engine.devices {gpus = devices.gpus >= 0 and devices.gpus or nil,
                    cuda_graphs = devices.cuda_graphs}
  end
  if devices.matmul_precision == "high" then engine.matmul_precision "high" end
  local ram = bytes_of(memory, "ram")
  budget.activations(memory.activations)
  if cfg.memory_gb > 0 then budget.memory_budget(cfg.memory_gb * 1e9) end
  if memory.disk ~= "" then return M.use_disk(memory, ram or budget.memory().budget) end
  for _, name in ipairs {"ram", "disk_rate"} do
    if bytes_of(memory, name) then
      lib.fail("memory.%s=%s has an effect only with a folder for what does not fit; set "
               .. "memory.disk=FOLDER, or clear it by memory.%s=", name, memory[name], name)
    end
  end
  local gpu = bytes_of(memory, "gpu")
  if gpu then budget.memory_tiers {gpu = gpu, plan_seconds = memory.plan_seconds} end
end

return M
