-- Saves the checkpoints of a run in the background. A checkpoint is valid once it is on the disk
-- and the results of all steps up to its own are finite.
local checkpoint = require "nn.models.checkpoint"
local lib = require "nn.base.capi"

local M = {}
local Saver = {}
Saver.__index = Saver

--- new(out, cfg, on_saved) -> saver for a run's folder and settings. on_saved(step, path) is called
--- when a checkpoint is complete.
function M.new(out, cfg, on_saved)
  return setmetatable({out = out, cfg = cfg, on_saved = on_saved}, Saver)
end

--- saver:resumed(found): continues from a checkpoint.
function Saver:resumed(found)
  self.path, self.step, self.best = found.path, found.state.step, found.state.best
end

--- saver:judge(step, val_loss): marks the step with the lowest validation loss for a checkpoint.
function Saver:judge(step, val_loss)
  local lowest = self.best and self.best.val_loss or math.huge
  if self.cfg.keep_best and val_loss < lowest then          -- NaN is never
    self.best = {step = step, val_loss = val_loss}
  end
end

--- saver:wants(step) -> whether a checkpoint is due.
function Saver:wants(step)
  local every = self.cfg.save_every
  return (every > 0 and step % every == 0) or (self.best and self.best.step == step)
end

--- saver:in_progress() -> the step of the checkpoint in progress, or nil.
function Saver:in_progress() return self.saving and self.saving.parts.step end

--- saver:newest() -> a sentence that names the last checkpoint, for errors.
function Saver:newest()
  return self.path and "The last checkpoint is " .. self.path or "No checkpoint was saved yet"
end

-- f(...); appends newest() to its error.
local function or_newest(self, f, ...)
  local good, result = lib.protected(f, ...)
  if good then return result end
  lib.fail("%s. %s", lib.is_error(result) and result.message or tostring(result), self:newest())
end

--- saver:start(step, parts): starts a checkpoint of the current state; none may be in progress.
--- Errors: failures of the disk.
function Saver:start(step, parts)
  if self.step == step then return end
  self.saving = or_newest(self, checkpoint.start, self.out, {
    step = step, model = parts.model, optim = parts.optim, data = parts.data,
    vocabulary = parts.vocabulary, config = self.cfg, keep = self.cfg.keep, best = self.best})
  self.step = step
end

--- saver:settle(good): waits for the checkpoint in progress if its step is at most `good`, the last
--- step with finite results; else abandons it. Errors: failures of the disk.
function Saver:settle(good)
  local saving = self.saving
  if not saving then return end
  self.saving = nil
  if saving.parts.step > good then return saving:abandon() end
  self.path = or_newest(self, saving.finish, saving)
  self.on_saved(saving.parts.step, self.path)
end

--- saver:written() -> whether the files of the checkpoint in progress are on the disk, or failed.
function Saver:written() return self.saving:done() end

--- saver:poll(good): settles the checkpoint in progress if that takes no waiting.
function Saver:poll(good)
  local step = self:in_progress()
  if step and step <= good and self.saving:done() then self:settle(good) end
end

return M
