-- What a run tells: a progress line for people (one that updates on a terminal, plain lines
-- elsewhere) and metrics.jsonl, one JSON object per event, for programs.
local files = require "nn.files"
local lib = require "nn.ffi"
local terminal = require "nn.terminal"

local M = {}

--- duration(seconds) -> "41s", "1:12" (minutes), "3:05:10" (hours) or "2d 04:10".
function M.duration(seconds)
  local s = math.floor(seconds + 0.5)
  if s < 60 then return s .. "s" end
  local minutes, hours = math.floor(s / 60), math.floor(s / 3600)
  if hours == 0 then return ("%d:%02d"):format(minutes, s % 60) end
  if hours < 24 then return ("%d:%02d:%02d"):format(hours, minutes % 60, s % 60) end
  return ("%dd %02d:%02d"):format(math.floor(hours / 24), hours % 24, minutes % 60)
end

--- bytes(n) -> "12 kB", "812 MB", "1.4 GB".
function M.bytes(n)
  if n < 999.5e3 then return ("%.0f kB"):format(n / 1e3) end
  if n < 999.5e6 then return ("%.0f MB"):format(n / 1e6) end
  if n < 999.5e9 then return ("%.1f GB"):format(n / 1e9) end
  return ("%.1f TB"):format(n / 1e12)
end

--- number(n) -> "812", "16.4k", "1.56M", "124M", "1.56B": three digits.
function M.number(n)
  for _, unit in ipairs {{1e9, "B"}, {1e6, "M"}, {1e3, "k"}} do
    if n >= unit[1] * 0.9995 then
      local x = n / unit[1]
      return ("%." .. (x < 9.995 and 2 or x < 99.95 and 1 or 0) .. "f%s"):format(x, unit[2])
    end
  end
  return ("%.0f"):format(n)
end

local Log = {}
Log.__index = Log

--- new(folder) -> log. metrics.jsonl in the folder is added to, never overwritten.
function M.new(folder)
  local tty = require("nn").is_tty(1)
  local color = tty and (os.getenv "NO_COLOR" or "") == ""
  return setmetatable({folder = folder, tty = tty, color = color, shown = 0, last = -1}, Log)
end

--- log:event(name, fields): a line of metrics.jsonl. Errors: where it cannot be written.
function Log:event(name, fields)
  if not self.metrics then
    local file, reason = io.open(files.join(self.folder, "metrics.jsonl"), "a")
    self.metrics = file or lib.fail("cannot write %s", reason)
  end
  local text = files.json(fields):sub(2)
  local comma = text == "}" and "" or ","
  self.metrics:write('{"event":', files.json(name), comma, text, "\n")
  self.metrics:flush()
end

local function clear(self)
  if self.shown > 0 then io.write("\r\27[K") end
  self.shown = 0
end

--- log:say(text, style): a line that stays. style "bold" or "dim", on terminals that have colours.
function Log:say(text, style)
  clear(self)
  local code = self.color and ({bold = 1, dim = 2})[style]
  io.write(code and ("\27[%dm%s\27[0m"):format(code, text) or text, "\n")
  io.flush()
end

--- line(fields, width) -> "step  120/2000  loss 2.3145 ..." of a step event. Where `width` columns
--- (nil: any) are too few, whole fields go, the least wanted first: norm, lr, mfu, ms, mem.
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
  add(7, "%s tok/s", f.tokens_per_s and M.number(f.tokens_per_s))
  add(3, "mfu %.0f%%", f.mfu and f.mfu * 100)
  add(5, "mem %s", f.memory and M.bytes(f.memory))
  add(6, "eta %s", f.eta and M.duration(f.eta))
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
--- ten times a second.
function Log:wants_progress()
  return self.tty and require("nn").now() - self.last > 0.1
end

--- log:progress(fields): shows step, steps, loss, lr, grad_norm, ms, tokens_per_s, mfu, memory
--- (bytes) and eta (seconds). On a terminal the line is replaced by the next one.
function Log:progress(fields)
  if not self.tty then return self:say(M.line(fields)) end
  local line = M.line(fields, (terminal.size()) - 1)
  io.write("\r", line, "\27[K")
  io.flush()
  self.shown, self.last = #line, require("nn").now()
end

--- log:close(): ends the progress line and the file.
function Log:close()
  if self.shown > 0 then io.write("\n") end
  io.flush()
  self.shown = 0
  if self.metrics then self.metrics:close() end
  self.metrics = nil
end

return M
