-- For tests of what a run prints.
local files = require "nn.io.files"
local t = require "nn.test"

--- printed(f) -> what f() writes to standard output.
return function(f)
  local before, name = io.output(), files.join(t.folder(), "printed")
  io.output(name)
  local good, problem = pcall(f)
  io.output():close()
  io.output(before)
  if not good then error(problem, 0) end
  return files.read(name)
end
