-- The output of a run: a progress line (updated in place on a terminal; plain lines elsewhere and
-- with TERM=dumb), metrics.jsonl (a JSON object per event), event files for TensorBoard,
-- report.html, and metrics.csv at the end.
local cluster = require "nn.base.cluster"
local csv = require "nn.train.csv"
local curves = require "nn.plot.curves"
local engine = require "nn.base.engine"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local live = require "nn.train.live"
local metrics = require "nn.train.metrics"
local report = require "nn.train.report"
local tensorboard = require "nn.train.tensorboard"
local terminal = require "nn.base.terminal"
local units = require "nn.base.units"

local M = {}

local FIRST_SHOWN = 1            -- seconds of a first step that is printed
local LIVE_SECONDS = 0.5         -- between two drawings of the live curve, at least
local FEWEST = 4                 -- values of a curve that is drawn
local Log = {}
Log.__index = Log

--- new(folder, plot) -> log, which appends to metrics.jsonl in the folder. plot: whether to draw
--- the curve of the loss below the progress line, on a terminal.
function M.new(folder, plot)
  local tty = engine.is_tty(1) and os.getenv "TERM" ~= "dumb"
  return setmetatable({folder = folder, tty = tty, color = terminal.has_colors(1), shown = 0,
                       live = plot and tty and terminal.shows_utf8() and live.new(folder) or nil,
                       below = 0, drawn = -1, last = -1, incomplete = {}}, Log)
end

-- A file of the log could not be written: prints a warning once and does not end the run.
local function warn_incomplete(self, name, reason)
  if self.incomplete[name] then return end
  self.incomplete[name] = true
  self:say(("warning: %s is incomplete: %s; the run continues"):format(name, reason))
end

-- Appends a line to metrics.jsonl.
local function append(self, ...)
  local written, reason = self.metrics:write(...)
  local flushed, why = self.metrics:flush()
  if not (written and flushed) then
    warn_incomplete(self, "metrics.jsonl", written and why or reason)
  end
end
jit.off(append)     -- compiled, a failed flush is repeated, and then succeeds with nothing to write

--- log:event(name, fields): writes a line to metrics.jsonl, and updates TensorBoard's file and the
--- report; on ranks other than 0, does nothing. Errors: metrics.jsonl cannot be opened; a full disk
--- is only a warning.
function Log:event(name, fields)
  if not cluster.is_first() then return end
  if not self.metrics then
    files.make_folder(self.folder, "the output folder")
    local path = file_type.replaced(files.join(self.folder, "metrics.jsonl"))
    local file, reason = io.open(path, "a")
    self.metrics = file or lib.fail("cannot write %s", reason)
  end
  local text = files.json(fields):sub(2)
  local comma = text == "}" and "" or ","
  append(self, '{"event":', files.json(name), comma, text, "\n")
  if self.live and fields.val_loss then self.live:add("val_loss", fields.step, fields.val_loss) end
  self:update_tensorboard(name, fields)
  self:refresh_report(name ~= "step")
end

-- The numbers of each event that TensorBoard shows.
local shown = {step = metrics.curves, eval = "all"}

function Log:update_tensorboard(name, fields)
  if not self.board then self.board = tensorboard.new(self.folder, fields.step or 0, os.time()) end
  local written, reason = true, nil
  if name == "sample" then
    written, reason = self.board:text(fields.step, "sample", fields.text)
  end
  local names, values = shown[name], {}
  if names == "all" then
    for key, value in pairs(fields) do
      if key ~= "step" and type(value) == "number" then values[key] = value end
    end
  else
    for _, key in ipairs(names or {}) do values[key] = fields[key] end
  end
  if next(values) then written, reason = self.board:scalars(fields.step, values) end
  if not written then warn_incomplete(self, "TensorBoard's file", reason) end
end

local REPORT_SECONDS, REPORT_SHARE = 10, 300     -- at most every 10 s, and 1/300 of the time

-- Rewrites report.html if it is due, or `at_once` if its share of the time allows. A failure prints
-- a warning and does not end the run.
function Log:refresh_report(at_once)
  local start = engine.now()
  if start < (self.report_from or 0) or (not at_once and start < (self.report_due or 0)) then
    return
  end
  local good, problem = lib.protected(report.write, files.join(self.folder, "report.html"),
                                      {self.folder}, self.folder)
  local took = engine.now() - start
  self.report_from = good and start + REPORT_SHARE * took or math.huge
  self.report_due = start + math.max(REPORT_SECONDS, REPORT_SHARE * took)
  if not good then self:say("warning: no report.html: " .. tostring(problem)) end
end

local function clear(self)
  if self.shown > 0 then io.write(self.below > 0 and "\r\27[J" or "\r\27[K") end
  self.shown, self.below = 0, 0
end

-- Draws the live curve below the progress line, where the cursor stays.
local function draw_live(self, line)
  local now = engine.now()
  if self.below > 0 and now - self.drawn < LIVE_SECONDS then return end
  local lines = self.live:lines()
  for _, text in ipairs(lines) do io.write("\n", text, "\27[K") end
  if #lines > 0 then io.write(("\27[%dA\r"):format(#lines), line) end
  self.below, self.drawn = #lines, now
end

--- log:say(text, style): prints a line that stays. style: "bold" or "dim", on terminals with
--- colours.
function Log:say(text, style)
  clear(self)
  local code = self.color and ({bold = 1, dim = 2})[style]
  io.write(code and ("\27[%dm%s\27[0m"):format(code, text) or text, "\n")
  io.flush()
end

--- log:first_step(step, seconds, planned): writes the time of the first step of this process, which
--- no speed contains. Prints it if the step was planned or took long.
function Log:first_step(step, seconds, planned)
  self:event("first_step", {step = step, seconds = math.floor(seconds * 1e3 + 0.5) / 1e3})
  if not planned and seconds < FIRST_SHOWN then return end
  self:say(("first step %s%s"):format(units.seconds(seconds),
                                      planned and " (planned and recorded)" or ""))
end

--- line(fields, width) -> "step  120/2000  loss 2.3145 ..." of a step event, of at most `width`
--- columns (nil: any): fields are dropped by importance, in the order norm, lr, mfu, ms, mem, ...
function M.line(f, width)
  local parts = {}
  local function add(keep, format, value, ...)
    if value then parts[#parts + 1] = {text = format:format(value, ...), keep = keep} end
  end
  add(9, "step %" .. #tostring(f.steps) .. "d/%d", f.step, f.steps)
  add(8, "loss %.4f", f.loss)
  add(2, "lr %.2e", f.lr)
  add(1, "norm %.2f", f.grad_norm)
  add(4, "%.1f ms", f.ms)
  add(7, "%s tok/s", f.tokens_per_s and units.number(f.tokens_per_s))
  add(3, "mfu %.0f%%", f.mfu and f.mfu * 100)
  add(5, "mem %s", f.memory and units.bytes(f.memory))
  add(5, "disk %s", f.disk_read and units.bytes(f.disk_read + f.disk_written))
  add(5, "stalled %.0f%%", f.stalled and f.stalled * 100)
  add(6, "eta %s", f.eta and units.duration(f.eta))
  for least = 1, 9 do
    local texts = {}
    for _, part in ipairs(parts) do
      if part.keep >= least then texts[#texts + 1] = part.text end
    end
    local line = table.concat(texts, "  ")
    if not width or #line <= width or least == 9 then return line:sub(1, width or -1) end
  end
end

--- log:wants_progress() -> whether to call progress() for a step that is not logged: on a terminal,
--- ten times per second.
function Log:wants_progress()
  return self.tty and engine.now() - self.last > 0.1
end

-- Replaces the progress line of the terminal.
local function replace_line(self, line)
  io.write("\r", line, "\27[K")
  if self.live then draw_live(self, line) end
  io.flush()
  self.shown, self.last = #line, engine.now()
end

local SLOW = 10                  -- seconds between lines about a validation without a terminal

--- log:validating(done, total, seconds): shows that `done` batches of a validation were computed
--- within `seconds`; total: nil if unknown.
function Log:validating(done, total, seconds)
  if done == 0 then self.validation_due = SLOW end
  local line = ("validating: batch %d%s"):format(done, total and " of " .. total or "")
  if total and done > 0 then
    line = ("%s  eta %s"):format(line, units.duration(seconds * (total - done) / done))
  end
  if self:wants_progress() then return replace_line(self, line) end
  if self.tty or done == total or seconds < self.validation_due then return end
  self.validation_due = seconds + SLOW
  self:say(line)
end

--- log:progress(fields): shows step, steps, loss, lr, grad_norm, ms, tokens_per_s, mfu, memory
--- (bytes), disk_read and disk_written (bytes per step), stalled (a share) and eta (seconds). On a
--- terminal, it replaces the previous progress line.
function Log:progress(fields)
  if not self.tty then return self:say(M.line(fields)) end
  if self.live then self.live:add("loss", fields.step, fields.loss) end
  -- The terminal may write ^C behind the line, which must not reach the next row.
  replace_line(self, M.line(fields, math.max(0, (terminal.size()) - #"^C" - 1)))
end

-- Writes metrics.csv. A failure prints a warning and does not end the run.
local function write_csv(self)
  local good, problem = lib.protected(function()
    files.write(files.join(self.folder, "metrics.csv"), csv.text {metrics.read(self.folder)})
  end)
  if not good then self:say("warning: no metrics.csv: " .. tostring(problem)) end
end

--- log:close(): ends the progress line, updates the report, writes metrics.csv, and closes the
--- files.
function Log:close()
  if self.shown > 0 then io.write(self.below > 0 and "\27[J\n" or "\n") end
  io.flush()
  self.shown, self.below = 0, 0
  if self.metrics then
    self.report_from = self.report_from ~= math.huge and 0 or nil
    self:refresh_report(true)
    write_csv(self)
    self.metrics:close()
    self.board:close()
  end
  self.metrics, self.board = nil, nil
end

--- log:show_curve(name): draws a series of metrics.jsonl, if the terminal shows UTF-8.
function Log:show_curve(name)
  if not self.tty or not terminal.shows_utf8() then return end
  local series = metrics.read(self.folder).series[name]
  if not series or #series.value < FEWEST then return end
  self:say(tostring(curves.plot(series.step, series.value, {title = name, height = 8})))
end

return M
