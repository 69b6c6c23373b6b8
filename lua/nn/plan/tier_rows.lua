-- The rows of a plan's table for memory tiers: what each keeps, and what a step moves between them.
local budget = require "nn.base.budget"
local units = require "nn.base.units"

local M = {}

--- shown(kind) -> the name of a kind of tensor in a plan.
function M.shown(kind) return kind == "other" and "workspace" or kind end

-- The bytes that a step moves, by kind: "3.2 GB (weights 1.1 GB, optimizer 2.1 GB)".
local function moved_text(moved)
  local parts = {}
  for _, kind in ipairs {"weights", "gradients", "optimizer", "cache", "activations", "other"} do
    if moved[kind] > 0 then parts[#parts + 1] = M.shown(kind) .. " " .. units.bytes(moved[kind]) end
  end
  local total = units.bytes(moved.total)
  return #parts > 0 and ("%s (%s)"):format(total, table.concat(parts, ", ")) or total
end

-- The bytes that a step moves, beside the lower bound and beside those of a simple cache.
local function compared_rows(level, row)
  local moved, least = level.loaded.total + level.stored.total, level.least_moved
  row("  both", units.bytes(moved) .. " a step" .. (least > 0
    and (", %.2f times the lower bound of %s"):format(moved / least, units.bytes(least)) or ""))
  row("", ("evicting the least recently used tiles would move %s"):format(
    units.bytes(level.lru_moved)))
end

-- The RAM of the process during training: tensors, and the rest.
local function trained_bytes(tiers)
  local upper = tiers.levels[1]
  return upper.slots + tiers.kept + upper.reserved + tiers.rest
end

--- process_bytes(tiers) -> the most RAM that the process needs. tiers: of a plan made in this
--- process, whose measurements also take RAM, before there are tensors.
function M.process_bytes(tiers)
  return math.max(trained_bytes(tiers), budget.memory().resident_peak)
end

--- process_text(tiers) -> the same as a text.
function M.process_text(tiers)
  local trained, most = trained_bytes(tiers), M.process_bytes(tiers)
  return ("%s of RAM%s, with %s for code, Lua, and the records of tasks"):format(
    units.bytes(most), most > trained and (" while it plans, then %s"):format(units.bytes(trained))
    or "", units.bytes(tiers.rest))
end

-- The tier `name` with slots.
local function slots_row(name, level, kept, row)
  row(name, ("%s: %s in slots, %s of small tiles, inputs and outputs, %s in reserve"):format(
    units.bytes(level.slots + kept + level.reserved), units.bytes(level.slots),
    units.bytes(kept), units.bytes(level.reserved)))
end

-- What a step moves between a tier with slots and the one below it, `name`. seconds: of a step.
local function moved_rows(name, level, seconds, row)
  row("  read", moved_text(level.loaded) .. " a step")
  row("  written", ("%s a step%s"):format(moved_text(level.stored), name == "disk"
    and (", %s a day"):format(units.bytes(level.stored.total / seconds * 86400)) or ""))
  compared_rows(level, row)
end

-- What takes the most time, and the share of the time for which each resource is busy.
local function bound_row(tiers, row)
  local on_gpu, bound, most = budget.on_gpu(), "computation", tiers.computing
  local function share(seconds) return 100 * math.min(1, seconds / tiers.seconds) end
  local text = ("%s %.0f %% of the time"):format(
    on_gpu and "the GPU computes" or "the workers compute", share(tiers.computing))
  for i, level in ipairs(tiers.levels) do
    local link = on_gpu and i == 1 and "the link to the GPU" or "the disk"
    text = ("%s, %s%s %.0f %%"):format(text, link, i == 1 and " is busy" or "", share(level.busy))
    if level.busy > most then bound, most = link, level.busy end
  end
  row("bound by", bound .. "; " .. text)
end

--- rows(tiers, list): adds the rows {name, text} of the table to a list.
function M.rows(tiers, list)
  local function row(...) list[#list + 1] = {...} end
  local room = budget.disk_room()
  for i, level in ipairs(tiers.levels) do
    local below = budget.tiers[i + 1]
    slots_row(budget.tiers[i], level, tiers.kept, row)
    if i == 1 and not budget.on_gpu() then row("process", M.process_text(tiers)) end
    if i == #tiers.levels then
      local lacks = room > 0 and tiers.in_store > room
      row(below, units.bytes(tiers.in_store) .. (lacks and (", but %s has only %s available")
        :format(budget.disk_folders, units.bytes(room)) or ""))
    end
    moved_rows(below, level, tiers.seconds, row)
  end
  bound_row(tiers, row)
  row("search", budget.search_text())
end

return M
