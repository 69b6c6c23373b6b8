-- Reads the files of a run: its curves, samples, settings and state.
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local schema = require "nn.io.schema"
local units = require "nn.base.units"
local validation = require "nn.train.validation"

ffi.cdef "int getpid(void);"

local M = {}
--- The curves of events of steps, in the order of reports.
M.curves = {"loss", "lr", "grad_norm", "tokens_per_s", "mfu", "memory", "disk_read",
            "disk_written", "disk_busy", "stalled"}

-- Field 22 of /proc/PID/stat, the start time of the process: distinguishes it from a later process
-- with the same PID.
local function start_of(pid)
  local file = io.open(("/proc/%d/stat"):format(pid))
  if not file then return nil end
  local fields, i = file:read "*a":match "%) (.*)", 2
  file:close()
  for field in fields:gmatch "%S+" do
    i = i + 1
    if i == 22 then return field end
  end
end

--- process() -> {pid=, start=} of this process, for the first event of a run.
function M.process()
  local pid = ffi.C.getpid()
  return {pid = pid, start = start_of(pid)}
end

local function append(series, step, seconds, value)
  local n = #series.step + 1
  series.step[n], series.seconds[n], series.value[n] = step, seconds, value
end

-- Removes the events after a step: the run was resumed from a checkpoint of that step.
local function cut(run, step)
  for _, series in pairs(run.series) do
    while #series.step > 0 and series.step[#series.step] > step do
      for _, list in pairs(series) do list[#list] = nil end
    end
  end
  local samples = run.samples
  while #samples > 0 and samples[#samples].step > step do samples[#samples] = nil end
end

local function add(run, name, step, seconds, value)
  if type(value) ~= "number" then return end          -- null: it was not finite
  local series = run.series[name] or {step = {}, seconds = {}, value = {}}
  run.series[name] = series
  append(series, step, seconds, value)
end

local number, text, optional = schema.number, schema.text, schema.optional
local at_step = {step = schema.whole()}
local moved = schema.fields {seconds = number, read = number, written = number}     -- of a step
local disk = schema.fields {seconds = number, read = number, written = number, stalled = number,
                            total = number, per_day = number}
local validated = schema.fields {batches = schema.whole(), all = optional(schema.whole()),
                                 seconds = number}
local described = schema.fields {
  command = optional(text), host = optional(text), processor = optional(text),
  workers = optional(text), starpu = optional(text), blas = optional(text), dtype = optional(text),
}
local start = {step = schema.whole(), parameters = optional(number), time = optional(text),
               planned = optional(moved), about = optional(described), version = optional(text),
               product_gflops = optional(number),
               process = optional(schema.fields {pid = schema.whole(), start = optional(text)})}

-- The fields of each event of metrics.jsonl. A line with missing or wrong fields is skipped, such
-- as the incomplete last line of a killed run.
local checks = {
  start = start, resume = start,
  first_step = {step = schema.whole(), seconds = number},
  step = {step = schema.whole(), seconds = optional(number), ms = optional(number),
          tokens_per_s = optional(number), disk_total = optional(number)},
  rate = {step = schema.whole(), product_gflops = number, was = number},
  eval = {step = schema.whole(), validation = optional(validated)},
  sample = {step = schema.whole(), text = text}, nan = at_step, error = at_step,
  stopped = {step = schema.whole(), disk = optional(disk)},
  done = {step = schema.whole(), val_loss = optional(number), tokens_per_s = optional(number),
          seconds = optional(number), validation = optional(validated), disk = optional(disk)},
}
for event, fields in pairs(checks) do checks[event] = schema.fields(fields) end

-- The event in a line; nil if it is not valid.
local function event_of(line)
  local event = files.parse_json(line)
  if type(event) ~= "table" then return nil end
  local check = checks[schema.without_null(event).event]
  return check and not check(event) and event or nil
end

-- A function per event of metrics.jsonl, which adds the event to a run.
local readers = {}

function readers.start(run, event)
  if event.event == "resume" then cut(run, event.step) end
  run.before = run.seconds                            -- seconds of earlier processes
  run.process, run.parameters, run.time, run.version = event.process, event.parameters,
    run.time or event.time, event.version
  run.about, run.gflops = event.about or {}, event.product_gflops
  run.state, run.planned, run.disk = nil, event.planned, nil
  run.first_step, run.ms, run.tokens_per_s = nil, nil, nil
  run.written_before = run.written                    -- to the disk, by earlier processes
  run.measured = run.series.mfu and #run.series.mfu.step or 0    -- values of earlier processes
end
readers.resume = readers.start

-- The machine was measured again, because other programs had disturbed the first measurement.
function readers.rate(run, event)
  run.gflops = event.product_gflops
  local values = event.product_gflops > 0 and run.series.mfu and run.series.mfu.value or {}
  for i = (run.measured or 0) + 1, #values do
    values[i] = values[i] * event.was / event.product_gflops
  end
end

function readers.first_step(run, event) run.first_step = event.seconds end

function readers.step(run, event)
  run.step, run.seconds = event.step, run.before + (event.seconds or 0)
  for _, name in ipairs(M.curves) do add(run, name, event.step, run.seconds, event[name]) end
  run.ms, run.tokens_per_s = event.ms or run.ms, event.tokens_per_s or run.tokens_per_s
  if event.disk_total then run.written = (run.written_before or 0) + event.disk_total end
end

-- The traffic with the disk of a process that ended.
local function set_disk(run, disk_use)
  run.disk = disk_use
  if disk_use then run.written = (run.written_before or 0) + disk_use.total end
end

-- Counts the time of a validation.
local function add_validation(run, found)
  if found then run.validating = (run.validating or 0) + found.seconds end
end

function readers.eval(run, event)
  add(run, "val_loss", event.step, run.seconds, event.val_loss)
  run.validation_at[event.step] = event.validation
  add_validation(run, event.validation)
end

function readers.sample(run, event)
  table.insert(run.samples, {step = event.step, text = event.text})
end

function readers.done(run, event)
  run.state, run.step, run.done = "done", event.step, event
  run.tokens_per_s = event.tokens_per_s or run.tokens_per_s
  set_disk(run, event.disk)
  local series = run.series.val_loss
  if not series or series.step[#series.step] ~= event.step then return readers.eval(run, event) end
  add_validation(run, event.validation)
end
function readers.stopped(run, event)
  run.state, run.step = "stopped", event.step
  set_disk(run, event.disk)
end
function readers.nan(run, event) run.state, run.step = "failed", event.step end
readers.error = readers.nan

local function state_of(run)
  if run.state then return run.state end
  local process = run.process
  local known = process and process.start
  local alive = known and process.start == start_of(process.pid)
  return alive and "running" or "ended early"
end

-- The lowest validation loss and its step.
local function best_of(series)
  local best
  for i, value in ipairs(series and series.value or {}) do
    if not best or value < best.value then best = {value = value, step = series.step[i]} end
  end
  return best
end

-- The settings in config.json; {} if it is missing or not valid.
local function config_of(folder)
  local path = files.join(folder, "config.json")
  local config = files.exists(path) and files.parse_json(files.read(path))
  return type(config) == "table" and schema.without_null(config) or {}
end

--- read(folder) -> run: name, folder, state ("running", "done", "stopped", "failed" or "ended
--- early"), step, steps, parameters, time (of its start), seconds of training, series {loss =
--- {step=, seconds=, value=} lists, ...}, samples {{step=, text=}, ...}, config (config.json), best
--- {value=, step=} of the validation loss, validation_at {[step] = {batches=, all=}, ...}, about
--- {command=, host=, ...} and gflops of the newest process. Errors: a folder without a run.
function M.read(folder)
  local path = files.join(folder, "metrics.jsonl")
  if not files.exists(path) then lib.fail("'%s' contains no run (no metrics.jsonl)", folder) end
  local run = {name = folder:gsub("/+$", ""):gsub("^%./", ""), folder = folder, series = {},
               samples = {}, validation_at = {}, step = 0, seconds = 0, before = 0, about = {}}
  for line in files.read(path):gmatch "[^\n]+" do
    local event = event_of(line)
    if event then readers[event.event](run, event) end
  end
  run.config = config_of(folder)
  run.steps = not schema.whole()(run.config.steps) and run.config.steps or nil
  run.state = state_of(run)
  run.best = best_of(run.series.val_loss)
  return run
end

local function last(series) return series and series.value[#series.value] end

-- The traffic with the disk, of a run that ended or from its last steps; nil if there was none.
local function disk_of(run)
  if run.disk then return run.disk end
  local read, written = last(run.series.disk_read), last(run.series.disk_written)
  local stalled, seconds = last(run.series.stalled), run.ms and run.ms / 1e3
  if not (read and written and stalled and seconds) then return nil end
  return {seconds = seconds, read = read, written = written, stalled = stalled,
          per_day = written / seconds * 86400}
end

-- Adds facts about the traffic with the disk, each beside its planned value.
local function disk_facts(run, fact)
  local disk_use = disk_of(run)
  if not disk_use then return end
  local function beside(name, show, value, planned)
    fact(name, planned and "%s, %s planned" or "%s", show(value), planned and show(planned))
  end
  local planned = run.planned or {}
  beside("time per step", units.seconds, disk_use.seconds, planned.seconds)
  beside("read per step", units.bytes, disk_use.read, planned.read)
  beside("written per step", units.bytes, disk_use.written, planned.written)
  fact("workers waited for the disk", "%.0f%%", 100 * math.min(1, disk_use.stalled))
  fact("written to the disk", "%s, %s a day", run.written and units.bytes(run.written),
       units.bytes(disk_use.per_day))
end

--- facts(run) -> {{name, text}, ...}: a summary of the run.
function M.facts(run)
  local list = {}
  local function fact(name, format, value, ...)
    if value then list[#list + 1] = {name, format:format(value, ...)} end
  end
  fact("state", "%s", run.state)
  fact("step", run.steps and "%d of %d" or "%d", run.step, run.steps)
  fact("loss", "%.4f", last(run.series.loss))
  local function by(found)
    return found and (" (%s)"):format(validation.label(found)) or ""
  end
  fact("lowest validation loss", "%.4f at step %d%s", run.best and run.best.value,
       run.best and run.best.step, run.best and by(run.validation_at[run.best.step]))
  fact("final validation loss", "%.4f%s", run.done and run.done.val_loss,
       run.done and by(run.done.validation))
  fact("parameters", "%s", run.parameters and units.number(run.parameters))
  fact("tokens/s", "%s", run.tokens_per_s and units.number(run.tokens_per_s))
  fact("first step", "%s", run.first_step and units.seconds(run.first_step))
  fact("training", "%s", run.seconds > 0 and units.duration(run.seconds))
  fact("validation", "%s", run.validating and units.duration(run.validating))
  disk_facts(run, fact)
  fact("began", "%s", run.time and run.time:gsub("T", " "):gsub("Z", " UTC"))
  return list
end

--- about(run) -> {{name, text}, ...}: how the run was started, where, and by which versions.
function M.about(run)
  local about, list = run.about, {}
  local version = run.version and run.version:gsub("^nnlua ", "")
  local rate = run.gflops and about.dtype and ("%s GFLOP/s in %s, an MFU of 100%%"):format(
    units.number(run.gflops), about.dtype)
  for _, entry in ipairs {
    {"command", about.command}, {"host", about.host}, {"processor", about.processor},
    {"workers", about.workers}, {"matrix products", rate}, {"nnlua", version},
    {"StarPU", about.starpu}, {"BLAS", about.blas},
  } do
    if entry[2] then list[#list + 1] = entry end
  end
  return list
end

return M
