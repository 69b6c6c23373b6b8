-- `nnlua --health` reports what the machine has, and what to do about each problem.
local t = require "nn.test"

local function health(settings)
  local status, output = t.shell(("env -u OPENBLAS_CORETYPE %s $NNLUA --health"):format(settings))
  return output, status
end

t.case("health checks every part of the machine, and its status reports problems", function()
  local output, status = health ""
  for _, part in ipairs {"Processor", "Matrix products", "StarPU", "GPUs", "Memory", "Disk",
                         "Terminal"} do
    t.check(output:find("\n" .. part .. "\n  [oW]"), part .. " in\n" .. output)
  end
  t.check(output:find "sgemm %d+ GFLOP/s, %d+%% of the peak of %d+ workers at [%d.]+ GHz")
  t.check(output:find "\n  ok    %d models of task times")
  local problems = select(2, output:gsub("\n  WRONG ", ""))
  local notes = select(2, output:gsub("\n  note  ", ""))
  t.same(select(2, output:gsub("\n        %-> ", "")), problems + notes)  -- each with its advice
  t.check(not output:find "WRONG load", "a busy machine is not a problem")
  local verdict = problems == 0 and "All is well."
    or ("%d problem%s found."):format(problems, problems == 1 and "" or "s")
  t.check(output:find("\n" .. verdict .. "\n", 1, true), output)
  t.same(status, problems == 0 and 0 or 1)
end)

t.case("each problem is named, with what to do", function()
  local output, status = health "OPENBLAS_CORETYPE=Haswell TMPDIR=/nowhere NNLUA_CPUS=1"
  t.same(status, 1)
  t.check(output:find "\n  %a+ +1 workers")
  for _, text in ipairs {
    "OPENBLAS_CORETYPE=Haswell is set\n        -> unset OPENBLAS_CORETYPE",
    "/nowhere does not exist (temporary files)\n        -> create the folder",
  } do
    t.check(output:find(text, 1, true), text .. " in\n" .. output)
  end
end)

t.case("health reports the folder of the performance models", function()
  local cache = t.folder()
  local models = cache .. "/nnlua/starpu/codelets/45"
  t.shell(("mkdir -p %s; touch %s/a %s/b"):format(models, models, models))
  local output = health("-u STARPU_PERF_MODEL_DIR XDG_CACHE_HOME=" .. cache)
  t.check(output:find(("\n  ok    performance models in %s/nnlua/starpu\n  ok    2 models"):format(
    cache), 1, true), output)
end)

t.finish()
