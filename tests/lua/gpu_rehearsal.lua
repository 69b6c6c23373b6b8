-- tests/gpu/run, the command for a machine with a GPU, rehearsed at small sizes on an emulated GPU,
-- or on the CPU: its scripts start, measure and report, so that time on such a machine is not lost.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local root = host.root
local binaries = os.getenv "NNLUA_BUILD_DIR" or root .. "/build"
local venv = root .. "/.deps/torch-venv/bin/python"

local function works(command) return (t.shell(command .. " >/dev/null 2>&1")) == 0 end

-- The report of a rehearsal of these parts, all of which must be ok.
local function rehearse(parts, python)
  local report = t.folder() .. "/report.json"
  local command = "cd %s; python3 tests/gpu/run --rehearse --binaries %s --only %q --json %s %s"
  local status, output = t.shell(command:format(root, binaries, parts, report,
                                                python and "--python " .. python or ""))
  t.check(status == 0, output)
  local result = files.parse_json(files.read(report))
  for _, row in ipairs(result.rows) do t.same({row.part, row.result}, {row.part, "ok"}) end
  return result, output
end

local function need_programs()
  if not works "python3 -c 'import sys; assert sys.version_info >= (3, 9)'" then
    t.skip "no Python 3.9"
  end
  if not works("test -x " .. binaries .. "/nnlua_tests") then
    t.skip("no C++ tests in " .. binaries)
  end
end

t.case("the parts without PyTorch finish, with a table and JSON", function()
  need_programs()
  local result, output = rehearse "ops,attention,step,memcheck,racecheck,budget,gpt2 nnlua"
  t.same(#result.rows, 7)
  t.same(#result.attention, 12)
  for _, row in ipairs(result.attention) do t.check(row.forward_ms > 0 and row.backward_ms > 0) end
  t.check(output:find "| gpt2%-xl | nnlua | [%d.]+ | [%d.]+ | [%d.]+ | [%d.]+ |", output)
  t.check(output:find "| ops | ok | %d+ | 0 |", output)
  if works("test -d " .. binaries .. "/emulated-gpus") then
    t.check(output:find "nnlua ran on an emulated GPU", output)
  end
  local speed = result.speeds["gpt2 nnlua"]
  t.check(speed.tokens_per_s > 0 and speed.host_us_per_task > 0 and speed.product_flops_per_s > 0)
  t.check(speed.kinds.gemm.ms > 0)
  t.check(output:find "| gpt2 | nnlua | %d+ | [%d.]+ |", output)
end)

t.case("the parts with PyTorch finish", function()
  need_programs()
  local python = works "python3 -c 'import torch'" and "python3"
                 or works(venv .. " -c 'import torch'") and venv
  if not python then t.skip "no Python with PyTorch" end
  local result = rehearse("gpt2 eager", python)
  t.check(result.speeds["gpt2 eager"].tokens_per_s > 0)
end)

t.case("a part that exceeds its time is reported, and the status is an error", function()
  need_programs()
  local status, output = t.shell(("cd %s; python3 tests/gpu/run --rehearse --binaries %s "
    .. "--only ops,budget --seconds 0.2"):format(root, binaries))
  t.same(status, 1)
  t.check(output:find("| ops | out of time |", 1, true), output)
  t.check(output:find("| budget | not started: time is up |", 1, true), output)
end)

t.case("without a GPU it reports that", function()
  need_programs()
  if works "nvidia-smi" then t.skip "there is a GPU" end
  local status, output = t.shell(("cd %s; python3 tests/gpu/run"):format(root))
  t.same(status, 1)
  t.check(output:find("nvidia-smi finds no GPU; --rehearse runs", 1, true), output)
end)

t.finish()
