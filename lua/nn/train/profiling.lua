-- `--profile` of a run: records every task of a few steps, prints a table, and writes a trace.
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local profile = require "nn.measure.profile"

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
  require("nn.measure.trace").check(file)
  return setmetatable({first = first, last = last, file = file}, RunProfile)
end

--- begin_step(step, pause, continue): call it before a step. pause() waits for all tasks and stops
--- the run's clock; continue() starts it again.
function RunProfile:begin_step(step, pause, continue)
  if step ~= self.first then return end
  pause()
  profile.start "run"
  continue()
end

--- end_step(step, early, pause, continue) -> the text to print after the last profiled step; else
--- nil. `early`: this is the last step of the run.
function RunProfile:end_step(step, early, pause, continue)
  if step < self.first or step > self.last or (step < self.last and not early) then return end
  pause()
  local text = tostring(profile.finish(self.file))
  self.last = step
  continue()
  return ("%s\nsteps %d to %d are in %s; open it in https://ui.perfetto.dev"):format(
    text, self.first, step, self.file)
end

return M
