-- The README's GPT-2 in Lua runs unchanged, and learns.

local t = require "nn.test"
local root = package.loaded["nn.host"].root

t.case("the README's script trains", function()
  local text = assert(io.open(root .. "/README.md")):read "*a"
  local code = assert(text:match "```lua\n(.-)```", "no Lua block in the README")
  code = code:gsub('"README.md"', function() return ("%q"):format(root .. "/README.md") end)
  local printed, losses = print, {}
  rawset(_G, "print", function(_, loss) losses[#losses + 1] = loss end)
  local ok, err = pcall(assert(loadstring(code, "=README.md")))
  rawset(_G, "print", printed)
  assert(ok, tostring(err))
  t.near(#losses, 4, {abs = 0})
  assert(losses[4] < losses[1] and losses[4] < 2.5, "the loss ended at " .. losses[4])
end)

t.finish()
