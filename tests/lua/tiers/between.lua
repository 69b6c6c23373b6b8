-- Compiled functions whose memory is planned, with other uses of their tensors between two runs:
-- the values are those of a run that fits into memory.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local function run(ram, what)
  local log = t.folder() .. "/log"
  local status, output = t.shell(("timeout -k 1 60 $NNLUA %s %d %s %s 2>%s"):format(
    host.root .. "/tests/lua/support/tiers_between.lua", ram, t.folder(), what, log))
  t.check(status == 0, output .. files.read(log))
  return output, files.read(log)
end

for what, name in pairs {
  inputs = "a change that reads an input has the input of its run",
  reads = "weights that no waiting change uses can be read between runs",
  argument = "a tensor can be used by a function and be its argument too",
  freed = "the changes of a function that is freed are made",
  ends = "a process ends while changes wait",
} do
  t.case(name, function()
    local expected = run(0, what)
    local output, log = run(5e6, what)
    t.same(output, expected)
    if what ~= "ends" then t.check(tonumber(log:match "read (%d+)") > 0, "nothing was moved") end
  end)
end

t.finish()
