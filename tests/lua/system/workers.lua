-- The number of workers and the scheduler do not change one bit of any result.

local t = require "nn.test"
local root = package.loaded["nn.host"].root
require("ffi").cdef "int getpid(void);"

local function bits(environment)
  local command = ("%s timeout 200 '/proc/%d/exe' '%s/tests/lua/support/bits.lua' 2>&1"):format(
    environment, require("ffi").C.getpid(), root)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return (text:gsub("nnlua: warning: NNLUA_CPUS=3 asks for more workers [^\n]*\n", ""))
end

local one = bits "NNLUA_CPUS=1"

t.case("the process with one worker finished", function()
  assert(one:find "norm.bias" and one:find "loss 20", one:sub(-300))
end)

local environments = {
  ["two workers"] = "NNLUA_CPUS=2",
  ["three workers"] = "NNLUA_CPUS=3",
  ["the eager scheduler"] = "NNLUA_CPUS=2 STARPU_SCHED=eager",
  ["the prio scheduler"] = "NNLUA_CPUS=2 STARPU_SCHED=prio",
  ["the dmdas scheduler"] = "NNLUA_CPUS=2 STARPU_SCHED=dmdas",
}
for name, environment in pairs(environments) do
  t.case(name .. " gives the bits of one worker", function()
    local other = bits(environment)
    if other == one then return end
    for a, b in (one .. "\n"):gmatch "()([^\n]*)\n" do
      if not other:find(b, 1, true) then error("differs at: " .. b .. " (byte " .. a .. ")", 0) end
    end
    error("the outputs differ", 0)
  end)
end

t.finish()
