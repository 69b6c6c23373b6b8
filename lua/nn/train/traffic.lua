-- The traffic of a run between memory and the disk (nn.memory_tiers): bytes per step, the share of
-- the time in which workers wait for the disk, and both beside the plan of the run's start. Only
-- the time of training counts, without validation, samples and the waits for checkpoints.
local budget = require "nn.base.budget"
local engine = require "nn.base.engine"
local units = require "nn.base.units"

local M = {}
local Traffic = {}
Traffic.__index = Traffic
local counters = {"read", "written", "busy", "stalled"}
local DAY = 86400

-- Differences of counters: b - a, plus `plus`.
local function difference(a, b, plus)
  local out = {}
  for _, name in ipairs(counters) do out[name] = b[name] - a[name] + (plus and plus[name] or 0) end
  return out
end

--- new() -> the meter of a run, which does nothing unless nn.memory_tiers has a disk. Its field
--- `plan` is set to the plan of a step, of compile.simulated().
function M.new() return setmetatable({}, Traffic) end

--- traffic:begin(step) -> `planned`, {seconds=, read=, written=} of a step; nil if the plan moves
--- nothing. A training begins after `step`.
function Traffic:begin(step)
  if not budget.has_disk() then return end
  self.zero = {read = 0, written = 0, busy = 0, stalled = 0, step = step, seconds = 0}
  for _, name in ipairs {"sums", "last", "window", "from", "steady"} do self[name] = self.zero end
  local tiers = self.plan and self.plan.tiers
  local moved = tiers and tiers.levels[#tiers.levels]           -- from and to the disk
  if tiers and moved.loaded.total + moved.stored.total > 0 then
    self.planned = {seconds = tiers.seconds, read = moved.loaded.total,
                    written = moved.stored.total}
  end
  return self.planned
end

--- traffic:start(), traffic:stop(step, seconds): training begins, and ends after all tasks of
--- `step`; it took `seconds` so far.
function Traffic:start()
  if self.zero then self.started = budget.memory().disk end
end

function Traffic:stop(step, seconds)
  if not self.zero then return end
  self.sums, self.started = self:now(), nil
  self.sums.step, self.sums.seconds = step, seconds
  self.last = self.sums
end

-- The counters of training so far.
function Traffic:now()
  if not self.started then return self.sums end
  return difference(self.started, budget.memory().disk, self.sums)
end

--- traffic:step(step, seconds): the loss of `step` was read after `seconds` of training, when the
--- step after the next one had been submitted: so `step` was complete. Transfers are ahead of it by
--- a part of a step, which is the same for all steps. The first step does not count: it also plans
--- the transfers.
function Traffic:step(step, seconds)
  if not self.zero then return end
  self.last = self:now()
  self.last.step, self.last.seconds = step, seconds
  self.steady = self.last
  if self.from == self.zero then self.from, self.window = self.last, self.last end
end

-- Bytes per step, seconds per step, and shares of the time from one step to another; nil if the
-- times are equal.
local function means(a, b)
  local d, steps, seconds = difference(a, b), b.step - a.step, b.seconds - a.seconds
  if steps <= 0 or seconds <= 0 then return nil end
  return {read = d.read / steps, written = d.written / steps, seconds = seconds / steps,
          busy = d.busy / seconds, stalled = d.stalled / seconds / engine.workers(),
          rate = (d.read + d.written) / seconds}
end

-- Whether anything was moved so far.
local function moved(self) return self.zero and self.last.read + self.last.written > 0 end

--- traffic:add(fields): adds disk_read and disk_written (bytes per step), disk_busy and stalled
--- (shares of the time), and disk_total (all bytes written so far) to the fields of a step. Adds
--- nothing if all tensors fit into memory. These are means since the last traffic:mark(), or the
--- ones before if no step ended since then.
function Traffic:add(fields)
  local mean = moved(self) and means(self.window, self.last) or self.shown
  if not mean then return end
  self.shown = mean
  fields.disk_read, fields.disk_written = math.floor(mean.read), math.floor(mean.written)
  fields.disk_busy = math.floor(math.min(1, mean.busy) * 1e4 + 0.5) / 1e4
  fields.stalled = math.floor(math.min(1, mean.stalled) * 1e4 + 0.5) / 1e4
  fields.disk_total = budget.memory().disk.written
end

function Traffic:mark() self.window = self.last end

--- traffic:summary() -> {seconds=, read=, written=, busy=, stalled=, rate=, total=, per_day=}: the
--- means of the steps after the first one, all bytes written by this process, and those that a day
--- of such steps would write; nil if nothing was moved or there is one step only.
function Traffic:summary()
  if not moved(self) then return nil end
  local out = means(self.from, self.steady) or means(self.from, self.last)
  if not out then return nil end
  out.total = budget.memory().disk.written
  out.per_day = out.written / out.seconds * DAY
  return out
end

local function step_text(x)
  return ("%s a step, %s read and %s written"):format(units.seconds(x.seconds), units.bytes(x.read),
                                                      units.bytes(x.written))
end

--- traffic:plan_lines() -> the lines at the start of a run: `planned`, if it exists, and whether
--- the search for a plan was ended.
function Traffic:plan_lines()
  local lines, limited = {}, budget.limited_text()
  if self.planned then lines[1] = "planned: " .. step_text(self.planned) end
  if limited then lines[#lines + 1] = "the search for the plan " .. limited end
  return lines
end

--- traffic:lines() -> the lines at the end of a run: measured values beside the planned ones, and
--- the bytes written to the disk.
function Traffic:lines()
  local mean, lines = self:summary(), {}
  if not mean then return lines end
  lines[1] = "measured: " .. step_text(mean)
  if self.planned then lines[2] = self:plan_lines()[1] end
  local waited = budget.on_gpu() and ""
    or ("; workers waited for it %.0f%% of theirs"):format(100 * math.min(1, mean.stalled))
  lines[#lines + 1] = ("disk: busy %.0f%% of the time, %s/s%s"):format(
    100 * math.min(1, mean.busy), units.bytes(mean.rate), waited)
  if self.plan and self.plan.process then
    lines[#lines + 1] = ("memory: at most %s of RAM for the process, %s planned"):format(
      units.bytes(budget.memory().resident_peak), units.bytes(self.plan.process))
  end
  lines[#lines + 1] = ("written to the disk: %s in all, %s a day at this rate"):format(
    units.bytes(mean.total), units.bytes(mean.per_day))
  return lines
end

return M
