-- Ends runs early: after a signal, when the run is saved first, or after an error in the user's
-- loop. The program calls nn.host.failed(message) for each error that ends a script or an input at
-- the prompt, and nn.host.before_input() before each input.
local cluster = require "nn.base.cluster"
local command = require "nn.train.command"
local engine = require "nn.base.engine"
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local units = require "nn.base.units"

ffi.cdef "int usleep(unsigned microseconds);"

local M = {}
local active                     -- the run that trains now
local HANG_SECONDS = 5           -- to wait for a checkpoint's file while a task hangs
local SKIPS = 20                 -- on_nan=skip: more skipped steps than this in a row end the run

--- say_what_remains(run): if a step of the run is given up (bindings/signals.cc), the message names
--- its last checkpoint.
function M.say_what_remains(run)
  if not run.in_steps then return end
  local text = run.saver:newest()
  if run.saver.path then text = text .. "; to resume:\n  " .. command.resume(run.out) end
  host.set_remains(text)
end

--- begin_steps(run), end_step(run): a step that lasts too long after SIGTERM is given up from now
--- on; the step has ended, and the run saves.
function M.begin_steps(run)
  run.in_steps = true
  M.say_what_remains(run)
end
function M.end_step(run)
  run.in_steps = false
  host.set_remains()
end

--- watch(run): the run trains from now on, and an error ends it.
function M.watch(run)
  active, host.failed, host.before_input = run, M.failed, M.before_input
  M.begin_steps(run)
end

-- Errors no longer end the run, and signals raise errors again.
local function unwatch()
  if active then M.end_step(active) end
  active, host.failed, host.before_input = nil, nil, nil
  engine.defer_interrupts(false)
end

--- before_input(): the prompt calls this before each input: no loop of a run is active then. An
--- error in a later input does not end the run; run:done ends it.
M.before_input = unwatch

--- finish(run): the run has ended, and its folder is free.
function M.finish(run)
  if run.lock then run.lock:release() end
  unwatch()
end

--- say_traffic(run) -> the summary of the run's traffic with the disk, which it prints; nil if
--- there was none.
function M.say_traffic(run)
  for _, line in ipairs(run.traffic:lines()) do run:say(line) end
  return run.traffic:summary()
end

--- before_error(run): closes the run's files before an error that all ranks raise, of which only
--- that of rank 0 is printed.
function M.before_error(run)
  run.log:close()
  M.finish(run)
  cluster.end_with_first()
end

--- asked() -> what signals have asked for since the last call: "stop", "save" or nil. With several
--- ranks, a signal to one of them counts for all.
function M.asked()
  local mine = engine.interrupted() and "stop" or host.save_asked() and "save" or ""
  if not cluster.several() then return mine ~= "" and mine or nil end
  local found
  for _, text in ipairs(cluster.gather("the end of a step", mine)) do
    if text == "stop" or text == "save" and not found then found = text end
  end
  return found
end

--- say_done(run, elapsed, text): prints the end of a run after `elapsed` seconds, with its last
--- numbers and the command that trains on.
function M.say_done(run, elapsed, text)
  local parts = {units.duration(run.seconds) .. " of training"}
  if run.validating then parts[2] = units.duration(run.validating) .. " of validation" end
  run:say(("done after %s (%s)%s; saved in %s"):format(
    units.duration(elapsed), table.concat(parts, ", "), text ~= "" and ": " .. text or "",
    run.saver.path), "bold")
  run:say("curves in " .. files.join(run.out, "report.html"))
  run:say(("to train on:\n  %s steps=%d"):format(command.resume(run.out), 2 * run.cfg.steps))
end

--- stop(run): ends a saved run after a stop signal: raises an error; the program then exits with
--- 128 + the signal's number.
function M.stop(run)
  run.log:event("stopped", {step = run.step, train_seconds = run.seconds,
                            disk = M.say_traffic(run)})
  host.clear_signals()
  M.before_error(run)
  lib.fail("stopped after step %d, which is saved in %s; to resume:\n  %s", run.step,
           run.saver.path, command.resume(run.out))
end

--- finite(x) -> whether a number is neither NaN nor infinite.
function M.finite(x) return x == x and math.abs(x) < math.huge end

--- not_finite(run, step, what, value): the loss or gradient norm `what` is not finite: skips the
--- step or ends the run.
function M.not_finite(run, step, what, value)
  if run.cfg.on_nan == "skip" and run.skipped < SKIPS then
    run.skipped = run.skipped + 1
    run.log:event("skip", {step = step, [what] = tostring(value)})
    run:say(("step %d: the %s is %s; this step changes nothing"):format(step, what, value))
    return
  end
  run.saver:settle(step - 1)
  run.log:event("nan", {step = step, [what] = tostring(value)})
  M.before_error(run)
  local advice = run.cfg.on_nan == "stop" and ", or skip such steps with on_nan=skip"
    or (" (%d steps in a row were skipped)"):format(SKIPS)
  lib.fail("the %s is %s at step %d; lower optim.lr or lengthen schedule.warmup%s. %s", what, value,
           step, advice, run.saver:newest())
end

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
-- needs failed; else removes it. Errors: failures of the disk.
local function settle(run)
  local step, idle = run.saver:in_progress(), false
  if not step then return end
  for _ = 1, 3 do idle = idle or pcall(engine.sync) end      -- each call reports one error
  local good, from = last_good(run, step), engine.now()
  while not idle and not run.saver:written() do
    if engine.now() - from > HANG_SECONDS then good = step - 1 break end
    ffi.C.usleep(1000)                   -- leaves the core to the thread that writes
  end
  run.saver:settle(good)
end

--- failed(message) -> the text to print below the message of an error: the step, the checkpoint to
--- resume from, unless the message names it, and the command; nil if no run trains.
function M.failed(message)
  local run = active
  if not run then return nil end
  active = nil
  M.end_step(run)
  if not cluster.is_first() then return nil end      -- rank 0 has the files
  local settled, problem = pcall(settle, run)
  local said = ""
  if run.step > 0 and not lib.is_interrupt(message) then
    said = ("The error came in step %d.\n"):format(run.step)
  end
  if not settled then
    said = ("%sThe checkpoint in progress could not be completed: %s\n"):format(said,
                                                                               tostring(problem))
  end
  pcall(function()
    run.log:event("error", {step = run.step, message = message})
    run.log:close()
  end)
  M.finish(run)
  local newest = run.saver:newest()
  local named = message:find(newest, 1, true) or said:find(newest, 1, true)
  if not run.saver.path then
    local text = said .. (named and "" or newest)
    return text ~= "" and text:gsub("\n$", "") or nil
  end
  return said .. (named and "To resume:\n  " or newest .. "; to resume:\n  ")
    .. command.resume(run.out)
end

return M
