-- Reports the progress of a plan that takes more than a few seconds. For step.lua.
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local units = require "nn.base.units"

local M = {}
local QUIET = 3                  -- seconds without a message
local SOON = 1                   -- seconds of recording after which the simulation may take long
local CHECK_EVERY = 64           -- ticks per reading of the clock
local shown, ticks, what, start, due = false, 0, nil, math.huge, math.huge

local function say(text)
  if engine.is_tty(2) then
    io.stderr:write("\r", text, "\27[K")
  else
    io.stderr:write(text, "\n")
  end
  shown = true
end

--- during(f, ...) -> f(...). tick() and recorded() inside it write messages to stderr.
function M.during(f, ...)
  ticks, what, start = 0, nil, engine.now()
  due = start + QUIET
  return lib.finally(function()
    if shown and engine.is_tty(2) then io.stderr:write "\r\27[K" end
    shown, start, due = false, math.huge, math.huge
  end, f, ...)
end

--- tick(name): counts one of the recorded things called `name`.
function M.tick(name)
  if name ~= what then ticks, what = 0, name end
  ticks = ticks + 1
  if ticks % CHECK_EVERY > 0 then return end
  local now = engine.now()
  if now < due then return end
  due = now + (engine.is_tty(2) and 0.2 or 10)
  say(("planning: %s %s recorded"):format(units.number(ticks), what))
end

--- recorded(): the recording is complete; its passes and its simulation follow.
function M.recorded()
  if shown or engine.now() > start + SOON then
    say "planning: ordering and simulating the recorded tasks"
  end
end

return M
