-- Runs a compiled function whose memory is planned, with other uses of its tensors between runs,
-- and prints the values, for tests/lua/tiers/between.lua. Arguments: the bytes of RAM (0: no
-- plan), a folder, and what is tested.
local nn = require "nn"

local ram, disk, what = tonumber(arg[1]), arg[2], arg[3]
if ram > 0 then nn.memory_tiers {ram = ram, disk = disk, disk_in_ram = true} end

local layers, size = 12, 256
nn.seed(3)
local fixed, moving = {}, {}
for i = 1, layers do
  fixed[i], moving[i] = nn.randn {size, size} * 0.05, nn.randn {size, size} * 0.05
end
local state = nn.zeros {size, size}

-- The changes at the end need the last result, so they can wait for the next run.
local f = nn.compile(function(x)
  local y = x
  for i = 1, layers do y = nn.tanh(y:matmul(fixed[i]):matmul(moving[i])) end
  local last = y:mean()
  local change = last * 1e-2
  for i = 1, layers do moving[i]:add_(change) end
  if what == "inputs" then state:add_(x) else state:add_(y) end
  return last
end)

nn.no_grad(function()
  for run = 1, 4 do
    local x = what == "argument" and fixed[run] or nn.full({size, size}, run / 10)
    print(("run %.17g"):format(f(x):item()))
    if what == "reads" then
      for i = 1, layers do print(("fixed %.17g"):format(fixed[i]:sum():item())) end
      if run % 2 == 0 then print(("moving %.17g"):format(moving[1]:sum():item())) end
    end
  end
end)
if what == "ends" then return end
if what == "freed" then
  f = nil
  collectgarbage()
  collectgarbage()
end
for i = 1, layers do print(("moving %.17g"):format(moving[i]:sum():item())) end
print(("state %.17g"):format(state:sum():item()))
io.stderr:write(("read %.0f\n"):format(nn.memory().disk and nn.memory().disk.read or 0))
