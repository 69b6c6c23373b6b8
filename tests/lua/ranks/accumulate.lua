-- Random modules of ordinary ops in microbatches and shards, on one rank and on two: the gradients
-- are those of one pass (support/accumulate_modules.lua). ACCUMULATE_MODULES: how many.
-- Runs alone: a rank that is silent for seconds counts as lost.
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"
local script = root .. "/tests/lua/support/accumulate_modules.lua"
local count = tonumber(os.getenv "ACCUMULATE_MODULES") or 4

local function check(ranks, words)
  local status, output = t.shell(("timeout -k 1 200 '%s' %s %s count=%d %s 2>&1"):format(
    mpi.program, ranks > 1 and "--ranks " .. ranks or "", script, count, words))
  t.check(status == 0, output)
  t.check(output:find(("modules: 0 of %d modules differ"):format(count), 1, true), output)
end

for _, ranks in ipairs {1, 2} do
  for ignored, first in pairs {equal = 501, unequal = 601} do
    local title = "2 shards on %d ranks with %s numbers of targets have the gradients of one pass"
    t.case(title:format(ranks, ignored), function()
      if ranks > 1 then mpi.need() end
      check(ranks, ("shards=2 microbatches=2,8 ignored=%s first=%d clip=1"):format(ignored, first))
    end)
  end
end

t.finish()
