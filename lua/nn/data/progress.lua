-- The progress of reading files, on stderr: one line that changes in a terminal, else a line every
-- 10 seconds.
local engine = require "nn.base.engine"
local units = require "nn.base.units"

local M = {}
local Progress = {}
Progress.__index = Progress

--- new(total, what) -> the progress of reading `total` bytes; what: precedes its figures, or nil.
function M.new(total, what)
  local now, tty = engine.now(), engine.is_tty(2)
  return setmetatable({total = total, prefix = what and what .. ": " or "", start = now, tty = tty,
                       pause = tty and 0.2 or 10, last = now}, Progress)
end

local function write(self, bytes)
  local rate = bytes / math.max(1e-9, engine.now() - self.start)
  io.stderr:write(self.tty and "\r" or "", self.prefix,
    ("%3.0f%%  %s of %s  %s/s  eta %s"):format(100 * bytes / math.max(1, self.total),
      units.bytes(bytes), units.bytes(self.total), units.bytes(rate),
      units.duration((self.total - bytes) / math.max(1, rate))), self.tty and "\27[K" or "\n")
  self.shown = true
end

--- progress:show(bytes): writes a line if the last one is old enough. bytes: read so far.
function Progress:show(bytes)
  local now = engine.now()
  if now - self.last < self.pause then return end
  self.last = now
  write(self, bytes)
end

--- progress:keep(): ends with a line for all bytes in a terminal.
function Progress:keep()
  if not self.tty then return end
  write(self, self.total)
  io.stderr:write "\n"
end

--- progress:clear(): removes the line from a terminal.
function Progress:clear()
  if self.tty and self.shown then io.stderr:write "\r\27[K" end
end

return M
