-- Runs tests/lua/support/tiers.lua in processes of their own.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local M = {script = host.root .. "/tests/lua/support/tiers.lua"}

--- train(settings, before) -> the output of a training, and its {peak, read, written} in bytes.
--- before: environment variables of the process, such as "NNLUA_CPUS=1".
function M.train(settings, before)
  local log = t.folder() .. "/log"
  local status, output = t.shell(("%s timeout -k 1 300 $NNLUA %s %s 2>%s"):format(
    before or "", M.script, settings, log))
  local text = files.read(log)
  t.check(status == 0, output .. text)
  local peak, read, written = text:match "peak (%d+) read (%d+) written (%d+)"
  return output, {peak = tonumber(peak), read = tonumber(read), written = tonumber(written)}
end

return M
