-- warnings(f) -> what f writes to standard error, such as warnings. f must not fail.
local t = require "nn.test"

return function(f)
  local original, out = io.stderr, {}
  rawset(io, "stderr", {write = function(_, ...) out[#out + 1] = table.concat {...} end})
  local good, problem = pcall(f)
  rawset(io, "stderr", original)
  t.check(good, tostring(problem))
  return table.concat(out)
end
