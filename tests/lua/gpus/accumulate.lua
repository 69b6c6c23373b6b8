-- Random modules of ordinary ops in microbatches on emulated GPUs: the gradients are those of one
-- pass (support/accumulate_modules.lua). ACCUMULATE_MODULES: how many.
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local emulated = require "emulated"
local script = root .. "/tests/lua/support/accumulate_modules.lua"
local count = tonumber(os.getenv "ACCUMULATE_MODULES") or 4

for _, gpus in ipairs {1, 2} do
  emulated.case(("microbatches on %d GPUs have the gradients of one pass"):format(gpus), function()
    local folder = t.folder()
    local status, output = t.shell(("%s timeout -k 1 200 $NNLUA %s count=%d first=%d 2>&1"):format(
      emulated.devices("gpus=" .. gpus, folder), script, count, 400 + 10 * gpus))
    t.check(status == 0, output)
    t.check(output:find(("modules: 0 of %d modules differ"):format(count), 1, true), output)
    for i = 0, gpus - 1 do
      t.check(emulated.counts(folder)["kernels_" .. i] > 0, ("GPU %d ran no kernel"):format(i))
    end
  end)
end

t.finish()
