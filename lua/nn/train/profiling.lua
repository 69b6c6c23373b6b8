-- `--profile` of a run: records every task of a few steps, prints a table, and writes a trace. With
-- several ranks, the table is that of rank 0, with a row for each rank.
local cluster = require "nn.base.cluster"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local profile = require "nn.measure.profile"
local trace = require "nn.measure.trace"
local units = require "nn.base.units"

local M = {}
local RunProfile = {}
RunProfile.__index = RunProfile
local WARMUP, STEPS = 3, 3     -- defaults of profile_steps

-- The first and the last step to profile, in a run of the steps `from` to `to`.
local function chosen_steps(text, from, to)
  if text == "" then
    local first = math.min(from + WARMUP, to)
    return first, math.min(first + STEPS - 1, to)
  end
  local first, last = text:match "^(%d+)%-(%d+)$"
  first = tonumber(first or text:match "^%d+$")
  last = tonumber(last) or first
  if not first or last < first then
    lib.fail("'profile_steps' must be a step or a range such as 10-12, not '%s'", text)
  end
  if first < from or last > to then
    lib.fail("'profile_steps' is %s, but this run has the steps %d to %d", text, from, to)
  end
  return first, last
end

--- new(cfg, out, from) -> an object with begin_step() and end_step(), or nil without cfg.profile.
--- The run has the steps `from` to cfg.steps. Errors: other steps in profile_steps; a file that
--- cannot be written.
function M.new(cfg, out, from)
  if cfg.profile == "" or cfg.profile == "false" or from > cfg.steps then return nil end
  local first, last = chosen_steps(cfg.profile_steps, from, cfg.steps)
  local file = cfg.profile == "true" and files.join(out, "trace.json") or cfg.profile
  if cluster.is_first() then trace.check(file) end
  return setmetatable({first = first, last = last, file = file}, RunProfile)
end

--- begin_step(step, pause, continue): call it before a step. pause() waits for all tasks and stops
--- the run's clock; continue() starts it again.
function RunProfile:begin_step(step, pause, continue)
  if step ~= self.first then return end
  pause()
  self.before = cluster.ranks()
  profile.start "run"
  continue()
end

-- The rows of all ranks.
local function rows_of_ranks(self, found)
  local before, now = self.before, cluster.ranks()
  local words = {("rank %d: %.0f%% busy, sent %s in %s, received %s"):format(
    now.rank, 100 * found.busy / (found.seconds * #found.workers),
    units.bytes(now.bytes_sent - before.bytes_sent),
    units.count(now.messages_sent - before.messages_sent, "message"),
    units.bytes(now.bytes_received - before.bytes_received))}
  for _, link in ipairs(found.links) do
    words[#words + 1] = ("%s %s"):format(link.name, units.bytes(link.bytes))
  end
  return table.concat(cluster.gather("a profile", table.concat(words, "; ")), "\n")
end

--- end_step(step, early, pause, continue) -> the text to print after the last profiled step; else
--- nil. `early`: this is the last step of the run.
function RunProfile:end_step(step, early, pause, continue)
  -- Ranks may learn of a signal in different steps.
  local is_last = step == self.last or (early and not cluster.several())
  if step < self.first or step > self.last or not is_last then return end
  pause()
  local file = cluster.is_first() and self.file or os.tmpname()
  local text = lib.finally(function() if not cluster.is_first() then files.remove(file) end end,
                           function()
    local found = profile.finish(file)
    if not cluster.several() then return tostring(found) end
    local text = tostring(found) .. "\n" .. rows_of_ranks(self, found)
    trace.gather(file)
    return text
  end)
  self.last = step
  continue()
  return ("%s\nsteps %d to %d are in %s; open it in https://ui.perfetto.dev"):format(
    text, self.first, step, self.file)
end

return M
