-- Ends runs early: after a signal, when the run is saved first, or after an error in the user's
-- loop. The program calls nn.host.failed(message) for each error that ends a script or an input at
-- the prompt, and nn.host.left() before each input.
local engine = require "nn.base.engine"
local host = require "nn.host"
local lib = require "nn.base.capi"

local M = {}
local active                     -- the run that trains now
local HANG_SECONDS = 5           -- to wait for a checkpoint's file while a task hangs

-- The command that resumes from the last checkpoint.
local function resume_command(self)
  if not arg or not arg[0] then return ("resume=auto out=%s"):format(self.out) end
  local first = 0
  while arg[first - 1] do first = first - 1 end
  local words = {arg[first], arg[0]}
  for _, word in ipairs(arg) do
    if not word:find "^resume=" and not word:find "^out=" then words[#words + 1] = word end
  end
  words[#words + 1] = "out=" .. self.out
  words[#words + 1] = "resume=auto"
  for i, word in ipairs(words) do
    if word:find "[^%w_./=,:@%%+-]" then words[i] = "'" .. word:gsub("'", "'\\''") .. "'" end
  end
  return table.concat(words, " ")
end

--- watch(run): the run trains from now on, and an error ends it.
function M.watch(run) active, host.failed, host.left = run, M.failed, M.left end

-- Errors no longer end the run, and signals raise errors again.
local function unwatch()
  active, host.failed, host.left = nil, nil, nil
  engine.defer_interrupts(false)
end

--- left(): an input at the prompt left the run's loop. An error in a later input does not end the
--- run, which waits for run:done.
M.left = unwatch

--- finish(run): the run has ended, and its folder is free.
function M.finish(run)
  if run.lock then run.lock:release() end
  unwatch()
end

--- stop(run): ends a saved run after a stop signal: this error gives status 128 + its number.
function M.stop(run)
  run.log:event("stopped", {step = run.step, train_seconds = run.seconds})
  run.log:close()
  host.clear_signals()
  M.finish(run)
  lib.fail("stopped after step %d, which is saved in %s; to resume:\n  %s", run.step,
           run.saver.path, resume_command(run))
end

--- finite(x) -> whether a number is neither NaN nor infinite.
function M.finite(x) return x == x and math.abs(x) < math.huge end

-- Reads the results up to a step -> the last step whose results are finite.
local function last_good(run, step)
  while run.pending[1] and run.pending[1].step <= step do
    local p = run.pending[1]
    local read, loss, norm = pcall(function()
      return p.loss:item(), p.norm and p.norm:item() or 0
    end)
    if not read or not M.finite(loss) or not M.finite(norm) then return p.step - 1 end
    table.remove(run.pending, 1)
  end
  return step
end

-- Completes the checkpoint in progress if the results of its step are finite and no task that it
-- needs failed; else removes it.
local function settle(run)
  local step, idle = run.saver:in_progress(), false
  if not step then return end
  for _ = 1, 3 do idle = idle or pcall(engine.sync) end      -- each reports one error
  local good, from = last_good(run, step), engine.now()
  while not idle and not run.saver:written() do
    if engine.now() - from > HANG_SECONDS then good = step - 1 break end
  end
  run.saver:settle(good)
end

--- failed(message) -> the text to print below the message of an error: the checkpoint to resume
--- from, unless the message names it, and the command; nil if no run trains.
function M.failed(message)
  local run = active
  if not run then return nil end
  active = nil
  pcall(settle, run)
  pcall(function()
    run.log:event("error", {step = run.step, message = message})
    run.log:close()
  end)
  M.finish(run)
  local newest = run.saver:newest()
  local named = message:find(newest, 1, true)
  if not run.saver.path then return not named and newest or nil end
  return (named and "To resume:\n  " or newest .. "; to resume:\n  ") .. resume_command(run)
end

return M
