-- Random modules of ordinary ops in microbatches, with less memory than they need: the gradients
-- are those of one pass (support/accumulate_modules.lua). ACCUMULATE_MODULES: how many.
local t = require "nn.test"
local script = package.loaded["nn.host"].root .. "/tests/lua/support/accumulate_modules.lua"
local count = tonumber(os.getenv "ACCUMULATE_MODULES") or 6
-- Bytes; some modules need twice as many. With 400000, nothing moved in one of six runs, because
-- tensors that Lua has not freed yet count too.
local RAM = 320000

for title, words in pairs {
  ["microbatches in memory tiers have the gradients of one pass"] = "",
  ["with recomputation and clipping, too"] = "activations=recompute clip=1 first=301",
} do
  t.case(title, function()
    local status, output = t.shell(("$NNLUA %s count=%d ram=%d disk=%s first=201 %s 2>&1"):format(
      script, count, RAM, t.folder(), words))
    local moved = tonumber(output:match "moved (%d+)\n")
    t.check(status == 0 and moved and moved > 0, output)
    t.check(output:find(("modules: 0 of %d modules differ"):format(count), 1, true), output)
  end)
end

t.finish()
