-- What to change so that a step fits into memory: for the table of --plan and for the errors at the
-- start of a training.
local budget = require "nn.base.budget"
local ffi = require "ffi"
local lib = require "nn.base.capi"
local units = require "nn.base.units"

local M = {}
local LEAST_TILES = 9            -- of the largest size, about, that fit into RAM above a disk
local cuts, count = ffi.new "int64_t[2]", ffi.new "int32_t[1]"

--- tile_bytes(x) -> the bytes of the first tile of a tensor; no other one is larger.
function M.tile_bytes(x)
  local bytes = x:bytes() / x:count()
  for axis = 1, #x.shape do
    lib.check(lib.C.nn_cuts(x.ref, axis - 1, cuts, 2, count))
    bytes = bytes * tonumber(cuts[1])
  end
  return bytes
end

--- disk(available, largest_tile) -> the advice to use a disk; nil if the RAM would not hold the
--- tiles of the largest task and as many in reserve, or if there are tiers of memory already.
function M.disk(available, largest_tile)
  if budget.tiers or LEAST_TILES * largest_tile > available then return nil end
  return "memory.disk=FOLDER, with which --plan shows the speed"
end

-- The advice to lower the batch, or nil if not even a batch of 1 fits.
local function batch(plan, o)
  if o.batch == 1 or plan.state > plan.available or o.needs(1) > plan.available then return nil end
  return ("a lower %s (and a higher data.accum)"):format(o.name)
end

-- The advice to recompute activations, or nil if they are recomputed or that saves nothing.
local function recomputation(plan, o)
  if not o.spared or budget.activation_choice ~= "keep" then return nil end
  local bytes = o.spared(o.batch)
  if bytes <= plan.available then
    return "memory.activations=auto, which can do with " .. units.bytes(bytes)
  end
  return bytes < plan.peak
    and ("memory.activations=recompute and %s of RAM"):format(units.bytes(bytes)) or nil
end

-- Texts, some of which may be nil -> "a; or b".
local function joined(...)
  local list = {}
  for i = 1, select("#", ...) do list[#list + 1] = (select(i, ...)) end
  return table.concat(list, "; or ")
end

--- changes(plan, o, peak=plan.peak) -> the changes with which a step fits that does not, besides
--- another batch. plan, o: as for report() of step.lua; plan.largest_tile, peak: bytes.
function M.changes(plan, o, peak)
  return joined(recomputation(plan, o), units.bytes(peak or plan.peak) .. " of RAM (memory_gb)",
                M.disk(plan.available, plan.largest_tile))
end

--- training_changes(plan, o) -> the same with another batch and another model.
function M.training_changes(plan, o)
  local context = plan.state <= plan.available and "model.context, " or ""
  return joined(batch(plan, o), M.changes(plan, o),
                ("a lower %smodel.layers or model.embd"):format(context))
end

return M
