-- Limits the memory for tensors in RAM to so many GB, or to the memory that this process may use if
-- that is less: the scripts in this folder state what they need on a large machine. 0: automatic.
local nn = require "nn"

return function(gb)
  nn.memory_budget(0)
  local most = nn.memory().budget
  if gb > 0 and gb * 1e9 < most then nn.memory_budget(gb * 1e9) end
end
