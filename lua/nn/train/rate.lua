-- The speed of a run: time per step over a window of its last steps, and its MFU. The first step of
-- the process does not count, because it also records the step and plans its transfers.
local cluster = require "nn.base.cluster"
local kept_rate = require "nn.train.kept_rate"
local lib = require "nn.base.capi"
local profile = require "nn.measure.profile"
local tensor = require "nn.core.tensor"

local M = {}
local Rate = {}
Rate.__index = Rate
local WINDOW = 1                 -- seconds of training in a window, at least
local AGAIN = 10                 -- seconds between measurements; doubled if the rate was not higher
local SIZE = 1024                -- of the measured products

local function round(x, unit) return x and math.floor(x / unit + 0.5) * unit end

--- new(model, data) -> the meter of a training of `model` on the loader `data` (nil: none).
--- `gflops` is the machine's rate of matrix products in the model's dtype, by kept_rate.lua, unless
--- the FLOPs of the model are unknown; with several ranks, that of one rank, and its share of the
--- FLOPs.
function M.new(model, data)
  local self = setmetatable({marks = {}, due = 0, again = AGAIN}, Rate)
  self.tokens = data and data:batch_tokens()
  self.flops = data and model.flops_per_token and model:flops_per_token(data.context, data.answer)
  if self.flops then self.flops = self.flops / cluster.ranks().ranks end
  self.dtype = model.config and model.config.dtype or "f32"
  if self.flops then
    self.gflops = kept_rate.find(self.dtype, function()
      return tensor.scope(profile.reference_gflops, SIZE, self.dtype)
    end)
  end
  return self
end

--- meter:read(step, seconds, waited) -> whether `step` is the first one. Its results were read
--- after `seconds` of training. waited: a pause or a save waited for these results, so their times
--- are too close together.
function Rate:read(step, seconds, waited)
  local now, is_first = {step = step, seconds = seconds}, not self.first
  if is_first then
    self.first, self.steady = now, not waited
    self:mark(step, seconds, waited)
  elseif not waited then
    self.last = now
  end
  return is_first
end

-- Seconds per step, nil if unknown. The window ends with the results of `step`. waited: see read();
-- the rate of the step before is used.
local function per_step(self, step, seconds, waited)
  local marks = self.marks
  if waited and self.steady then return self.latest end
  self.steady = not waited
  while marks[2] and seconds - marks[2].seconds >= WINDOW do table.remove(marks, 1) end
  if not marks[1] or step <= marks[1].step then return nil end
  self.latest = (seconds - marks[1].seconds) / (step - marks[1].step)
  return self.latest
end

--- meter:mean(step, seconds) -> seconds per step of the steps after the first one, nil if there are
--- none. `step` is complete after `seconds` of training.
function Rate:mean(step, seconds)
  local first, last = self.first, self.last or {step = step, seconds = seconds}
  if not first or last.step <= first.step then return nil end
  return (last.seconds - first.seconds) / (last.step - first.step)
end

--- meter:speed(step, seconds, waited, measure) -> {per_step=, ms=, tokens_per_s=, mfu=}, each nil
--- if unknown, after meter:read(step, seconds, waited). Calls measure(gflops) if the run achieves
--- `gflops`, more than the measured rate of the machine: another program was running then. It calls
--- meter:measure() between steps. While the run exceeds the measured rate, mfu is unknown.
function Rate:speed(step, seconds, waited, measure)
  local out = {per_step = per_step(self, step, seconds, waited)}
  if not out.per_step then return out end
  local tokens = self.tokens and self.tokens / out.per_step
  if self.flops then
    local gflops = tokens * self.flops / 1e9
    if gflops > self.gflops and seconds >= self.due then
      self.due = seconds + self.again
      measure(gflops)
    end
    if gflops <= self.gflops then out.mfu = round(gflops / self.gflops, 1e-4) end
  end
  out.ms, out.tokens_per_s = round(out.per_step * 1e3, 1e-3), round(tokens, 1)
  return out
end

--- meter:measure(achieved): measures the machine again -> the fields of the event `rate`, or nil if
--- its rate was not higher; the next measurement is then later.
function Rate:measure(achieved)
  local was = self.gflops
  local good, found = lib.protected(tensor.scope, profile.reference_gflops, SIZE, self.dtype,
                                    achieved)
  if good and found > was then
    self.gflops = found
    kept_rate.keep(self.dtype, found)
    return {product_gflops = found, was = was}
  end
  self.again = 2 * self.again
end

--- meter:mark(step, seconds, waited): a window may begin with these results; see read().
function Rate:mark(step, seconds, waited)
  if not waited then table.insert(self.marks, {step = step, seconds = seconds}) end
end

return M
