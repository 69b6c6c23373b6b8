-- `nnlua --health` reports what the machine has, and what to do about each problem.
local computer = require "nn.measure.computer"
local report = require "health"
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
  t.check(output:find "sgemm %d+ GFLOP/s, .- nominal %(%d+: %d+ workers?, [%d.]+ GHz, %w+%)"
          or output:find "sgemm %d+ GFLOP/s, the clock of the processor is unknown", output)
  t.check(output:find "\n  ok    matrix units: %S+", output)
  t.check(output:find "\n  ok    %d models of task times")
  local problems = select(2, output:gsub("\n  WRONG ", ""))
  local notes = select(2, output:gsub("\n  note  ", ""))
  t.same(select(2, output:gsub("\n        %-> ", "")), problems + notes)  -- each with its advice
  t.check(not output:find "WRONG load", "a busy machine is not a problem")
  t.check(output:find("\n" .. report.verdict(problems, notes) .. "\n", 1, true), output)
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

t.case("all is well only without a problem and without a note", function()
  t.same({report.verdict(0, 0), report.verdict(0, 1), report.verdict(1, 0), report.verdict(2, 3)},
         {"All is well.", "1 note, no problem found.", "1 problem found.",
          "2 problems and 3 notes found."})
end)

t.case("a rate above the nominal one of the processor is no percentage over 100", function()
  local function text(...) return select(2, report.nominal(...)) end
  t.same(text(80, 2, 2.5, "avx2"), "50% of nominal (160: 2 workers, 2.5 GHz, avx2)")
  t.same(text(203, 2, 2.5, "avx2"), "above nominal (160: 2 workers, 2.5 GHz, avx2): the clock is "
         .. "higher than stated")
  t.same({report.nominal(80, 2, 0, "avx2")}, {0, "the clock of the processor is unknown"})
end)

t.case("the matrix units of a processor are named, and those it lacks", function()
  local function units(flags, name)
    return computer.matrix_units(computer.processor((name or "flags") .. "\t\t: " .. flags .. "\n"))
  end
  t.same(units "fpu sse2", "none known; no AMX, AVX-512, AVX2")
  t.same(units "fma avx2 avx_vnni", "AVX2 (FMA, VNNI); no AMX, AVX-512")
  t.same(units "fma avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8",
         "AMX (BF16, INT8), AVX-512 (BF16, VNNI), AVX2 (FMA)")
  t.same(units("fp asimd sve svebf16 bf16 i8mm", "Features"), "SVE (BF16), NEON (BF16, INT8)")
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
