-- A training run: output folder, seeds, resume, checkpoints, signals, metrics, the progress line.
-- The recipe contains the loop. The results of a step are read only after the second step after it
-- has been submitted; reading them earlier would leave the workers without tasks.
local arguments = require "nn.base.arguments"
local beginning = require "nn.train.beginning"
local budget = require "nn.base.budget"
local checkpoint = require "nn.models.checkpoint"
local ending = require "nn.train.ending"
local engine = require "nn.base.engine"
local host = require "nn.host"
local lib = require "nn.base.capi"
local log = require "nn.train.log"
local memory = require "nn.train.memory"
local module = require "nn.core.module"
local rates = require "nn.train.rate"
local registry = require "nn.models.registry"
local run_plan = require "nn.plan.training"
local run_profile = require "nn.train.profiling"
local run_settings = require "nn.train.settings"
local saver = require "nn.train.saver"
local traffic = require "nn.train.traffic"
local validation = require "nn.train.validation"
local verify = require "nn.train.verify"

local M = {}
local Run = {}
Run.__index = Run
local LAG = 2                    -- steps submitted after one before its results are read
local LONG = 1                   -- seconds of a step whose results are read at once
local tracked = arguments.names "model optim data vocabulary"

-- A run in a folder, which is locked if the run trains.
local function open(cfg, out, lock)
  local self = setmetatable({cfg = cfg, out = out, lock = lock, log = log.new(out, cfg.plot),
                             step = 0, seconds = 0, skipped = 0, pending = {},
                             traffic = traffic.new(), began = engine.now()}, Run)
  self.saver = saver.new(out, cfg, function(step, path)
    self.log:event("checkpoint", {step = step, path = path})
    ending.say_what_remains(self)
  end)
  memory.use_memory(cfg)
  run_settings.use_ranks(cfg)
  engine.seed(cfg.seed)
  local function warn(text) self:say("warning: " .. text) end
  self.checkpoint = checkpoint.find(out, cfg.resume, warn)
  local state = self.checkpoint and self.checkpoint.state
  if cfg.resume == "auto" and not state and run_settings.trains(cfg) then
    self:say(beginning.nothing_to_resume(out))
  end
  if state then self.vocabulary = self.checkpoint:vocabulary() end
  return self
end

--- nn.run(cfg) -> run. Creates and locks the output folder, finds the checkpoint to resume from,
--- sets the seed and the memory budget. `cfg`: settings with nn.run_fields. run.vocabulary is that
--- of the checkpoint, if any. Errors: a folder that cannot be written, that another process uses,
--- or that already contains a run; a damaged checkpoint.
---     local run = nn.run(cfg)
---     run:track{model = model, optim = optim, data = data.train, vocabulary = data.vocabulary}
---     for _ in run:steps() do run:record(step(data.train:batch())) end
---     run:done {val_loss = nn.evaluate(model, data.val, 2)}
function M.run(cfg)
  run_settings.need(cfg)
  local out, lock = run_settings.claim_folder(cfg)
  cfg.out = out
  return lib.guarded(function() if lock then lock:release() end end, open, cfg, out, lock)
end

--- run:sample(text): logs a sample of the model at this step: terminal, metrics.jsonl, report.
---     local run = nn.run(cfg)
---     run:track{model = model}
---     run:sample "To be, or not to be"
function Run:sample(text)
  self:say(("a sample after step %d:"):format(self.step), "dim")
  self:say(text)
  self.log:event("sample", {step = self.step, text = text})
end

--- run:say(text, style): prints a line above the progress line. style: "bold" or "dim".
---     nn.run(cfg):say "nearly there"
function Run:say(text, style) self.log:say(text, style) end

--- run:track{model=, optim=, data=, vocabulary=}: sets the objects that checkpoints store. Restores
--- them if the run is resumed, and writes config.json. Errors: model settings that differ from the
--- checkpoint's.
---     nn.run(cfg):track{model = model, optim = optim, data = data.train}
function Run:track(parts)
  parts = arguments.options("track", parts, tracked)
  arguments.need(module.is_module(parts.model), "track", "model", parts.model,
                 "a model of nn.module is needed")
  self.parts = parts
  self.first = 1
  if self.checkpoint then
    run_settings.compare(self.cfg, self.checkpoint, function(text) self:say(text) end)
    if not self.checkpoint:restore(parts) then
      self:say("warning: the training data changed since the checkpoint; resuming inexactly")
    end
    local change = registry.change_of_file(self.checkpoint.state)
    if change then self:say("warning: " .. change) end
    self.step = self.checkpoint.state.step
    self.first = self.step + 1
    self.saver:resumed(self.checkpoint)
    self:say(("resumed after step %d from %s"):format(self.step, self.checkpoint.path))
  end
  self.model_file = beginning.file_of_model(parts.model)
  run_settings.write(self.cfg, self.model_file)
end

--- run:plan(build, loader, requirements) -> whether to train. With plan=true it prints the cost of
--- a step (memory by kind, whether it fits, the largest batch that fits, time) and the time of the
--- steps that are left, and with verify=K it trains fewer layers with memory.disk and without, and
--- compares all bits; it then returns false.
--- build() creates and returns the model, the optimizer and the step, a function of the loader's
--- ids and targets; it is recorded here without computing or allocating anything. requirements
--- (optional): the result of GPT2.requirements; settings that cannot fit are then refused before
--- anything is recorded. Errors: a step that does not fit into memory, with the needed and the
--- available bytes.
---     local function build()
---       local m = GPT2 {layers = 1, heads = 2, embd = 16, context = 16, vocab = 256}
---       local o = nn.AdamW(m)
---       return m, o, function(ids, targets) m(ids, targets):backward() return o:step() end
---     end
---     nn.run(cfg):plan(build, data.train)  --> true
function Run:plan(build, loader, requirements)
  local function say(text) self:say(text) end
  if run_settings.trains(self.cfg) then
    self.traffic.plan = run_plan.need_room(build, loader, requirements, say)
    return true
  end
  if self.cfg.verify > 0 then return verify.verify_tiers(self, build, loader) end
  local left = self.cfg.steps - (self.checkpoint and self.checkpoint.state.step or 0)
  for _, line in ipairs(run_plan.report(build, loader, requirements, left, say)) do say(line) end
  return false
end

-- Seconds of training so far in this process, without validation, samples and checkpoints.
local function trained(self)
  return self.seconds + (self.mark and engine.now() - self.mark or 0)
end

-- Waits for all tasks and stops the clock of training.
local function stop_clock(self)
  engine.sync()
  self.seconds, self.mark = trained(self), nil
  self.traffic:stop(self.step, self.seconds)
end

local function start_clock(self)
  self.mark = engine.now()
  self.traffic:start()
end

-- The progress line and, every log_every steps, a line of metrics. waited: see meter:read().
local function report_step(self, step, loss, norm, lr, waited)
  local cfg = self.cfg
  local keep = step % cfg.log_every == 0 or step == cfg.steps
  if not keep and not self.log:wants_progress() then return end
  local now = trained(self)
  local speed = self.rate:speed(step, now, waited, function(achieved)
    stop_clock(self)
    local fields = self.rate:measure(achieved)
    if fields then
      fields.step = step
      self.log:event("rate", fields)
    end
    start_clock(self)
  end)
  local fields = {step = step, steps = cfg.steps, loss = loss, grad_norm = norm, lr = lr,
                  ms = speed.ms, tokens_per_s = speed.tokens_per_s, mfu = speed.mfu,
                  memory = budget.memory().peak,
                  eta = speed.per_step and (cfg.steps - step) * speed.per_step}
  self.traffic:add(fields)
  self.log:progress(fields)
  if not keep then return end
  fields.steps, fields.eta, fields.seconds = nil, nil, math.floor(now * 1e3 + 0.5) / 1e3
  self.log:event("step", fields)
  self.rate:mark(step, now, waited)
  self.traffic:mark()
end

-- Adds the step to the speed and the traffic of the run. waited: see meter:read().
local function count_step(self, step, waited)
  local now = trained(self)
  local is_first = self.rate:read(step, now, waited)
  if is_first then self.log:first_step(step, now, budget.memory().slots > 0) end
  if is_first or not waited then self.traffic:step(step, now) end
end

-- Reads the results of the oldest pending step. waited: see meter:read().
local function read_oldest(self, waited)
  local p = self.pending[1]
  local loss, norm = p.loss:item(), p.norm and p.norm:item()
  table.remove(self.pending, 1)          -- not before: after an error, ending.lua reads the rest
  p.loss:release()
  if p.norm then p.norm:release() end
  count_step(self, p.step, waited)
  if not ending.finite(loss) then return ending.not_finite(self, p.step, "loss", loss) end
  if norm and not ending.finite(norm) then
    return ending.not_finite(self, p.step, "gradient norm", norm)
  end
  self.skipped = 0
  report_step(self, p.step, loss, norm, p.lr, waited)
end

--- run:record(loss, grad_norm): logs the results of this step, which are tensors. Their values are
--- read some steps later, unless a step takes long. Errors: NaN or infinite values, with
--- on_nan=stop.
---     local run = nn.run(cfg)
---     run:track{model = model, optim = optim, data = data.train}
---     for _ in run:steps() do run:record(step(data.train:batch())) end
function Run:record(loss, norm)
  if type(loss) ~= "table" then lib.misuse("record: the loss is a %s, not a tensor", type(loss)) end
  if loss.shape and loss:count() ~= 1 then
    lib.misuse("record: the loss has %d elements; its mean or sum is needed", loss:count())
  end
  local optim = self.parts.optim
  self.pending[#self.pending + 1] = {step = self.step, loss = loss, norm = norm,
                                     lr = optim and optim.lr}
  local before, now = self.recorded or 0, trained(self)
  self.recorded = now
  -- The submission of a step with a loop lasts nearly as long as the step.
  local most = now - before < LONG and LAG or 0
  while #self.pending > most do read_oldest(self) end
end

local function pause(self)
  while #self.pending > 0 do read_oldest(self, true) end
  stop_clock(self)
  if self.rate then self.rate:mark(self.step, self.seconds) end
end

--- run:every(n, f): calls f() after every n-th step (0: never). Training time excludes it.
---     local run, calls = nn.run(cfg), 0
---     run:track{model = model}
---     for _ in run:steps() do run:every(2, function() calls = calls + 1 end) end
---     calls  --> 2
function Run:every(n, f)
  arguments.whole("every", "the number of steps", n, 0)
  arguments.callable("every", f)
  if n == 0 or self.step % n ~= 0 then return end
  pause(self)
  f()
  start_clock(self)
end

-- Checks the numbers by name for report() and done(); converts tensors of one element.
local function numbers(who, values)
  arguments.need(type(values) == "table", who, "the argument", values,
                 "numbers by name are needed, {val_loss = 1}")
  for name, value in pairs(values) do
    if type(value) == "table" and value.item then values[name] = value:item() end
    arguments.need(type(values[name]) == "number", who, name, value, "a number is needed")
  end
end

--- run:validate(model, loader, batches) -> the result of nn.evaluate with the same arguments. Shows
--- its progress on the terminal. run:report and run:done then state the batches of this val_loss.
---     local run = nn.run(cfg)
---     run:track{model = model}
---     run:report {val_loss = run:validate(model, data.val, 2)}
function Run:validate(model, loader, batches)
  return validation.validate(self, model, loader, batches)
end

--- run:report{val_loss=...}: logs numbers of this step to the terminal and metrics.jsonl. A
--- val_loss of at most the setting stop_at ends the loop after this step.
---     local run = nn.run(cfg)
---     run:track{model = model}
---     run:report {val_loss = run:validate(model, data.val, 2)}
function Run:report(values)
  numbers("report", values)
  if not next(values) then return end
  local found = validation.of(self, values)
  local text = validation.text_of(values, found)
  self:say(("step %d/%d  %s"):format(self.step, self.cfg.steps, text), "bold")
  values.step, values.validation = self.step, found
  self.log:event("eval", values)
  if not values.val_loss then return end
  self.saver:judge(self.step, values.val_loss)
  self.reached = values.val_loss <= self.cfg.stop_at
  if self.reached then self:say(("stopping: stop_at=%g is reached"):format(self.cfg.stop_at)) end
end

-- The last step whose results were read.
local function good(self) return self.step - #self.pending end

-- Starts saving the current state, after the previous save is complete.
local function start_save(self)
  local before = self.saver:in_progress()
  while before and good(self) < before do read_oldest(self, true) end
  self.saver:settle(good(self))
  self.saver:start(self.step, self.parts)
end

-- Saves the current state, and waits until it is on the disk.
local function save(self)
  pause(self)
  ending.end_step(self)
  start_save(self)
  self.saver:settle(self.step)
end

-- Handles signals and checkpoints after a step. Waits only for the last checkpoint.
local function end_step(self)
  engine.defer_interrupts(true)
  local last, asked = self.step == self.cfg.steps or self.reached, ending.asked()
  if last or asked then save(self) end
  if last or asked == "stop" then return last or ending.stop(self) end
  if asked == "save" then
    ending.begin_steps(self)
    self:say(("saved step %d in %s after a signal; the run continues"):format(
      self.step, self.saver.path))
    return start_clock(self)
  end
  self.saver:poll(good(self))
  if self.saver:wants(self.step) then start_save(self) end
end

local function begin(self)
  self.profile = run_profile.new(self.cfg, self.out, self.first)
  engine.defer_interrupts(budget.tiers and "runs" or true)       -- plans of tiers take long
  host.save_asked()                      -- a signal from before the run does not save it
  ending.watch(self)
  local model, data, random = self.parts.model, self.parts.data, engine.random_state()
  self.rate = rates.new(model, data)
  engine.set_random_state(random)
  engine.sync()
  budget.reset_peak()                    -- reports the memory of training only
  beginning.begin(self)
  start_clock(self)
end

--- run:steps() -> iterator over the step numbers, from 1 or from the step after the checkpoint. It
--- saves every save_every steps and after the last one; after `break`, run:done saves. Ctrl-C,
--- SIGTERM and SIGHUP finish the step, save, print the command that resumes, and end the program
--- with status 128 + the signal's number; a signal more than a second later ends it at once, and
--- so does a step that has not ended NNLUA_GRACE seconds (20) after SIGTERM.
--- SIGUSR1 and SIGUSR2 save, and the run continues. After an error in the loop, a checkpoint in
--- progress is completed if its values are good, and the program prints the last checkpoint.
---     local run, last = nn.run(cfg), nil
---     run:track{model = model}
---     for n in run:steps() do last = n end
---     last  --> 4
function Run:steps()
  if not self.parts then lib.misuse "steps: call run:track {model = model, ...} first" end
  begin(self)
  local inside, profiling = false, self.profile
  local function before_profile() pause(self) end
  local function after_profile() start_clock(self) end
  return function()
    if inside then
      local text = profiling and profiling:end_step(self.step, engine.interrupted(),
                                                    before_profile, after_profile)
      if text then self:say(text) end
      end_step(self)
    end
    if self.step >= self.cfg.steps or self.reached then
      pause(self)
      return nil
    end
    inside = true
    self.step = self.step + 1
    if profiling then profiling:begin_step(self.step, before_profile, after_profile) end
    collectgarbage "step"
    return self.step
  end
end

--- run:done{val_loss=...} or run:done(): ends the run: saves, and writes metrics.csv and the last
--- line of metrics.jsonl, {"event":"done", ...}, with seconds, the time since nn.run;
--- train_seconds, that of the training steps; and tokens_per_s, the mean speed of the steps after
--- the first. Prints the command that trains on.
---     local run = nn.run(cfg)
---     run:track{model = model, optim = optim, data = data.train}
---     for _ in run:steps() do run:record(step(data.train:batch())) end
---     run:done {val_loss = 1}
function Run:done(values)
  values = values or {}
  numbers("done", values)
  save(self)                             -- if the loop was left before the last step
  local found, elapsed = validation.of(self, values), engine.now() - self.began
  local text = validation.text_of(values, found)
  values.validation = found
  values.step, values.train_seconds, values.seconds = self.step, self.seconds, elapsed
  local per_step = self.rate and self.rate:mean(self.step, self.seconds)
  values.tokens_per_s = self.parts.data and per_step and self.parts.data:batch_tokens() / per_step
  ending.say_done(self, elapsed, text)
  values.disk = ending.say_traffic(self)
  self.log:event("done", values)
  self.log:show_curve "loss"
  self.log:close()
  ending.finish(self)
  if engine.interrupted() then
    host.clear_signals()
    lib.fail("interrupted after the last step, which is saved in %s", self.saver.path)
  end
end

return M
