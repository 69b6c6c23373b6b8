-- A GPU that CUDA cannot use is named, on an emulated CUDA run time whose first call fails.
local host = require "nn.host"
local files = require "nn.io.files"
local t = require "nn.test"

package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local emulated = require "emulated"
local base = t.folder()

-- Runs code where cudaGetDeviceCount fails with this error -> status, output and errors together.
local function run(failure, code)
  files.write(base .. "/script.lua", "local nn = require 'nn'\n" .. code)
  local devices = emulated.devices("gpus=1 " .. failure, base)
  return t.shell(("%s timeout -k 1 60 $NNLUA %s/script.lua 2>&1"):format(devices, base))
end

local failing = "fail=cudaGetDeviceCount:1:"
-- The driver that runs CUDA 13 is 580, by NVIDIA's release notes; 12: 525.
local too_old = "the driver is too old: it supports CUDA 11.4, and this build needs CUDA 1[23].%d; "
  .. "install driver 5[28][05] or later"
local problems = {
  [failing .. "35 driver=11040"] = too_old,
  [failing .. "3"] = "CUDA fails: initialization error %(error 3 of cudaGetDeviceCount%)",
  [failing .. "803"] = "CUDA fails: [^\n]+ %(error 803 of cudaGetDeviceCount%)",
}

emulated.case("GPUs that CUDA cannot use cost one line, and the work runs on CPU cores", function()
  for failure, problem in pairs(problems) do
    local status, output = run(failure, "print(nn.ones(3):sum():item(), select(2, nn.workers()))")
    t.same(status, 0, output)
    t.check(output:find("^nnlua: warning: no GPU is used, [^\n]+: " .. problem
                        .. "; nn.devices{gpus=0} chooses CPU cores\n3\t0\n$"), output)
    status, output = run(failure, "nn.devices {gpus = 0} print(nn.ones(3):sum():item())")
    t.same({status, output}, {0, "3\n"})
  end
end)

emulated.case("GPUs that a script asks for are an error with the reason", function()
  for failure, problem in pairs(problems) do
    for _, code in ipairs {"nn.devices {gpus = 1} print(nn.ones(3):sum():item())",
                           "nn.run_tasks_on 'gpu'", "nn.memory_tiers {gpu = 1e8} nn.workers() "
                           .. "nn.compile(function() return nn.ones(3):sum() end)()"} do
      local status, output = run(failure, code)
      t.check(status == 1 and output:find(problem), code .. ": " .. output)
    end
  end
end)

emulated.case("a machine without a driver or without GPUs costs no line", function()
  if files.exists "/dev/nvidiactl" then t.skip "this machine has a driver" end
  for _, failure in ipairs {failing .. "35 driver=0", failing .. "100"} do
    local status, output = run(failure, "print(nn.ones(3):sum():item(), select(2, nn.workers()))")
    t.same({status, output}, {0, "3\t0\n"})
  end
end)

emulated.case("health names the driver", function()
  local _, output = t.shell(emulated.devices("gpus=1 " .. failing .. "35 driver=11040", base)
                            .. " $NNLUA --health")
  t.check(output:find("\nGPUs\n  WRONG " .. too_old), output)
end)

t.finish()
