-- What `--profile` adds to a run: a few of its steps are recorded task by task, told as a table and
-- written as a trace.
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local profile = require "nn.measure.profile"

local M = {}
local RunProfile = {}
RunProfile.__index = RunProfile
local WARMUP, STEPS = 3, 3     -- unless profile_steps says which

-- First and last step to record, of a run that does steps `from` to `to`.
local function chosen_steps(text, from, to)
  if text == "" then
    local first = math.min(from + WARMUP, to)
    return first, math.min(first + STEPS - 1, to)
  end
  local first, last = text:match "^(%d+)%-(%d+)$"
  first = tonumber(first or text:match "^%d+$")
  last = tonumber(last) or first
  if not first or last < first then
    lib.fail("'profile_steps' is one step or two as 10-12, not '%s'", text)
  end
  if first < from or last > to then
    lib.fail("'profile_steps' is %s; this run does the steps %d to %d", text, from, to)
  end
  return first, last
end

--- new(cfg, out, from) -> what begin_step() and end_step() are called of, or nil without
--- cfg.profile. The run does the steps `from` to cfg.steps. Errors: steps that it does not do; a
--- file that cannot be written.
function M.new(cfg, out, from)
  if cfg.profile == "" or cfg.profile == "false" or from > cfg.steps then return nil end
  local first, last = chosen_steps(cfg.profile_steps, from, cfg.steps)
  local file = cfg.profile == "true" and files.join(out, "trace.json") or cfg.profile
  require("nn.measure.trace").check(file)
  return setmetatable({first = first, last = last, file = file}, RunProfile)
end

--- begin_step(step, pause, go_on): before a step. pause() and go_on() stop the run's clock, with
--- all tasks done, and let it go on.
function RunProfile:begin_step(step, pause, go_on)
  if step ~= self.first then return end
  pause()
  profile.start "run"
  go_on()
end

--- end_step(step, pause, go_on) -> text to tell after the last step of the profile; else nil. With
--- `early` what was recorded so far is all.
function RunProfile:end_step(step, early, pause, go_on)
  if step < self.first or step > self.last or (step < self.last and not early) then return end
  pause()
  local text = tostring(profile.finish(self.file))
  self.last = step
  go_on()
  return ("%s\nsteps %d to %d are in %s; https://ui.perfetto.dev shows it"):format(
    text, self.first, step, self.file)
end

return M
