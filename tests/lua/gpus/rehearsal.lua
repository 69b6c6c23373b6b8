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
local function rehearse(parts, options)
  local report = t.folder() .. "/report.json"
  local command = "cd %s; python3 tests/gpu/run --rehearse --binaries %s --only %q --json %s %s"
  local status, output = t.shell(command:format(root, binaries, parts, report, options or ""))
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

-- A Python that runs this shell code instead of torch_speed.py.
local function fake_python(code)
  local program = t.folder() .. "/python"
  files.write(program, [[#!/bin/sh
    case $1 in *torch_speed.py) ;; *) exec python3 "$@" ;; esac
    ]] .. code .. "\n")
  t.shell("chmod +x " .. program)
  return program
end

t.case("the parts without PyTorch finish, with a table and JSON", function()
  need_programs()
  local result, output = rehearse("ops,attention,step,memcheck,racecheck,budget,"
    .. "products,gpt2 nnlua,gpt2 nnlua with graphs,gpt2-xl nnlua with bf16 gradients,"
    .. "gpt2-xl nnlua with atomics,gpt2-xl nnlua in half")
  t.same(#result.rows, 12)
  t.same(#result.attention, 12)
  t.same(#result.products, 12)
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
  local result = rehearse("gpt2 eager", "--python " .. python)
  t.check(result.speeds["gpt2 eager"].tokens_per_s > 0)
end)

t.case("a part that exceeds its time is reported, and the status is an error", function()
  need_programs()
  local python = fake_python "sleep 100"
  local status, output = t.shell(("cd %s; python3 tests/gpu/run --rehearse --binaries %s --only "
    .. "'gpt2 eager,gpt2-xl eager' --seconds 5 --python %s --json %s/report.json"):format(
    root, binaries, python, t.folder()))
  t.same(status, 1)
  t.check(output:find("| gpt2 eager | out of time |", 1, true), output)
  t.check(output:find("| gpt2-xl eager | not started: time is up |", 1, true), output)
end)

t.case("--only unfinished runs what an earlier report lacks, and completes the report", function()
  need_programs()
  local report = t.folder() .. "/report.json"
  local speed = {tokens_per_s = 1, flops_per_s = 1, product_flops_per_s = 2, ms_per_step = 1,
                 peak_bytes = 1, kinds = {}}
  for i = 1, 99 do speed.kinds[("k"):rep(200) .. i] = i end
  local earlier = {gpu = "a", notes = {"earlier note"}, attention = {}, products = {}, rows = {},
                   speeds = {}}
  for name in ("build,kernels,step,gpt2 nnlua,gpt2 compile,gpt2-xl nnlua,gpt2-xl compile,"
      .. "gpt2 eager,gpt2-xl eager,gpt2 nnlua with graphs,gpt2-xl nnlua with graphs,"
      .. "gpt2-xl nnlua with bf16 gradients,"
      .. "gpt2 nnlua with 2 tiles,gpt2 nnlua with atomics,gpt2-xl nnlua with atomics,"
      .. "gpt2-xl nnlua in half,products,attention,ops,budget,memcheck,"
      .. "racecheck,"):gmatch "(.-)," do
    table.insert(earlier.rows, {part = name, result = name == "step" and "failed" or "ok",
                                passed = 1, failed = 0, skipped = 0, seconds = 1, limit = 1})
    if name:find "^gpt2" then earlier.speeds[name] = speed end
  end
  local json = require("cjson").encode(earlier)
    :gsub('"(%a+)":{}', {attention = '"attention":[]', products = '"products":[]'})
  files.write(report, json)
  local status, output = t.shell(("cd %s; python3 tests/gpu/run --rehearse --binaries %s "
    .. "--only unfinished --json %s"):format(root, binaries, report))
  t.check(status == 0, output)
  t.same({select(2, output:gsub("\n[%w ]+: ok, ", "")), output:match "^step: ok, " ~= nil},
         {0, true})
  local result = files.parse_json(files.read(report))
  t.same(#result.rows, 22)
  for _, row in ipairs(result.rows) do t.same({row.part, row.result}, {row.part, "ok"}) end
  t.check(result.speeds["gpt2 nnlua with graphs"].ms_per_step == 1)
  t.check(#output < 12500 and output:find("earlier note", 1, true), #output .. " characters")
end)

t.case("two calls run all parts even if each needs all its time", function()
  need_programs()
  local status, output = t.shell(("cd %s; PYTHONPATH=tests/gpu python3 -B - <<'END'\n"):format(root)
    .. [[
import parts
limits = [limit for _, limit, _ in parts.PARTS]
first = len(parts.FIRST)
assert parts.FIRST == parts.PARTS[:first]
print(sum(limits[:first]), sum(limits[first:]) + parts.BUILT, parts.CALL, len(limits))
END]])
  t.same(status, 0)
  local first, second, call, count = output:match "(%d+) (%d+) (%d+) (%d+)"
  t.check(tonumber(first) <= tonumber(call), output)
  t.check(tonumber(second) <= tonumber(call), output)
  t.check(tonumber(call) <= 570, output)
  t.same(tonumber(count), 22)
end)

t.case("a memory budget above the memory of the machine is lowered to it", function()
  for _, words in ipairs {"speed.lua model=custom steps=1 warmup=1 product=64",
                          "budget.lua steps=2"} do
    local status, output = t.shell(("cd %s; $NNLUA tests/gpu/%s layers=1 heads=2 embd=8 vocab=8 "
      .. "batch=1 tokens=4 where=cpu ram_gb=1000000"):format(root, words))
    t.check(status == 0, output)
  end
end)

t.case("the report notes warnings, and --copy copies it with all output after each part", function()
  need_programs()
  local folder = t.folder()
  local copied = rehearse("gpt2 nnlua", "--copy " .. folder .. "/copied")
  t.same(files.parse_json(files.read(folder .. "/copied/report.json")), copied)
  t.check(files.read(folder .. "/copied/log.txt"):find("tests/gpu/speed.lua", 1, true))
  local result, output = rehearse("gpt2 eager", "--python " .. fake_python [[
    echo "nnlua: cuDNN does not support this; nnlua's own kernel runs instead"
    echo "UserWarning: a warning" >&2
    echo '{"versions": "PyTorch 0", "tokens_per_s": 1, "flops_per_s": 1, "product_flops_per_s": 1,'\
      '"ms_per_step": 1, "peak_bytes": 1, "kinds": {}}']])
  local notes = table.concat(result.notes, "\n")
  for _, note in ipairs {"PyTorch 0", "eager: UserWarning: a warning",
                         "eager: nnlua: cuDNN does not support this; nnlua's own kernel runs"} do
    t.check(notes:find(note, 1, true) and output:find(note, 1, true), output)
  end
end)

t.case("--pack refuses to pack without a package, before anything is changed", function()
  if not works("test -f " .. root .. "/.deps/starpu/made_for") then t.skip "no StarPU in .deps" end
  local folder = t.folder()
  files.write(folder .. "/dpkg", "#!/bin/sh\n[ \"$2\" != catch2 ]\n")
  local status, output = t.shell(("cd %s; chmod +x %s/dpkg; PATH=%s:$PATH python3 tests/gpu/run "
    .. "--pack"):format(root, folder, folder))
  t.check(status == 1 and output:find "packages are not installed: catch2; run: apt%-get", output)
end)

t.case("without a GPU it reports that", function()
  need_programs()
  if works "nvidia-smi" then t.skip "there is a GPU" end
  local status, output = t.shell(("cd %s; python3 tests/gpu/run"):format(root))
  t.same(status, 1)
  t.check(output:find("nvidia-smi finds no GPU; --rehearse runs", 1, true), output)
end)

t.finish()
