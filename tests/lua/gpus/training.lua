-- Training on GPUs, with the CUDA run time of tests/emulated/runtime, which needs no GPU: devices
-- with memory of their own, streams that are threads, and kernels that compute what the CPU's do.
-- So results must be those of the CPU to the bit, for any number of devices and any timing.
-- GPUS=all: every case at every size, and a failure of many calls of each function of CUDA.
-- GPUS_DELAYS: how many seeds of random delays.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local all = os.getenv "GPUS" == "all"
local seeds = tonumber(os.getenv "GPUS_DELAYS") or all and 50 or 2
local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or os.time() % 100000
math.randomseed(seed)
local base = t.folder()
local emulated = require "emulated"
local script = host.root .. "/tests/lua/support/gpus.lua"

local function devices(description) return emulated.devices(description, base) end

local function run(description, words) return emulated.train(description, words, base) end
local function counts() return emulated.counts(base) end
local function kernels(gpus)
  local sum, counted = 0, counts()
  for i = 0, gpus - 1 do
    t.check(counted["kernels_" .. i] > 0, ("GPU %d ran no kernel"):format(i))
    sum = sum + counted["kernels_" .. i]
  end
  return sum
end

local known = {}
local function expected(words)
  known[words] = known[words] or select(2, run(nil, words))
  return known[words]
end

-- Runs with GPUs -> the standard error. The output must be that of the CPU.
local function same_as_cpu(description, words, gpu_words)
  local status, output, errors = run(description, words .. " " .. (gpu_words or ""))
  t.check(status == 0, description .. ": " .. errors)
  t.same(output, expected(words))
  return errors
end

local case = emulated.case

for _, gpus in ipairs {1, 4, 2} do
  case(("training and generation on %d GPUs give the CPU's bits"):format(gpus), function()
    same_as_cpu("gpus=" .. gpus, "")
    local on_gpus = kernels(gpus)
    if gpus == 4 and not all then return end
    same_as_cpu("gpus=" .. gpus, "", "where=gpu")
    t.same(kernels(gpus), on_gpus)
    same_as_cpu("gpus=" .. gpus, "", "where=any")
    local beside_cpus, counted = 0, counts()
    for i = 0, gpus - 1 do beside_cpus = beside_cpus + counted["kernels_" .. i] end
    t.check(beside_cpus < on_gpus, "CPU workers ran no task")
  end)
end

-- A gradient goes from GPU to GPU, and then to the owner of its parameter, which sends the updated
-- parameter to the others. Of n GPUs: 2 (n - 1) times the parameters, which is what an all-reduce
-- takes, and (n - 1) / n times the gradients that end at another GPU than their owner. The tied
-- embedding has two gradients, which are added on every GPU. The rest are scalars, and copies that
-- StarPU repeats where tasks come late.
case("between GPUs, only gradients and updated parameters move, as often as they must", function()
  local parameters, tied = 108608 * 4, 101 * 64 * 4
  local gpus = 2
  local function bytes(steps)
    local status, _, errors = run("gpus=" .. gpus, "eager=0 tokens=0 steps=" .. steps)
    t.same(status, 0, errors)
    local counted, between = counts(), 0
    for i = 0, gpus - 1 do
      for j = 0, gpus - 1 do between = between + counted[("bytes_%d_%d"):format(i, j)] end
    end
    return between
  end
  bytes(1)                       -- StarPU measures the links when it starts for the first time
  local moved = (bytes(12) - bytes(2)) / 10
  local least = 2 * (gpus - 1) * parameters
  local most = least + (gpus - 1) / gpus * parameters + 2 * gpus * tied
  t.check(moved >= least and moved <= 1.03 * most,
          ("%g bytes, from %g to %g"):format(moved, least, most))
end)

case("two streams per GPU, bf16, microbatches and eager steps give the CPU's bits", function()
  same_as_cpu("gpus=2", "", "streams=2")
  same_as_cpu("gpus=2", "dtype=bf16 accum=2 eager=3")
  same_as_cpu("gpus=2 peers=0", "")
end)

case("random delays on streams change no bit", function()
  for i = 1, seeds do same_as_cpu("gpus=2 delays=" .. seed + i, "", i % 2 == 0 and "where=any") end
end)

case("with less memory than a step needs, tiles are evicted and no bit changes", function()
  local words = "embd=256 layers=4 vocab=300 steps=2 tokens=0"
  for _, gpus in ipairs(all and {1, 2, 4} or {1}) do
    local moved = {}
    for _, memory in ipairs {0, 67108864} do
      local errors = same_as_cpu("gpus=" .. gpus, words,
                                 ("report=1 memory=%d"):format(memory))
      for used in errors:gmatch "GPU %d+ used (%d+)" do
        t.check(memory == 0 or tonumber(used) <= memory, used .. " bytes on a GPU")
      end
      moved[#moved + 1] = tonumber(errors:match "moved (%d+)")
    end
    t.check(gpus > 1 or moved[2] > 2 * moved[1],
            "nothing was evicted: " .. table.concat(moved, " "))
  end
end)

case("what exceeds a GPU without a plan or a chosen limit is refused with advice", function()
  local words = "embd=768 heads=12 vocab=300 batch=2 steps=1 eager=0 tokens=0 layers="
  for gpus, more in pairs {[1] = "7", [2] = "10"} do
    local status, _, errors = run(("gpus=%d memory=640"):format(gpus), words .. more)
    local message = gpus == 1 and "take %d+ MB of the GPU's memory, which has %d+ MB for them; .-"
      .. "keep in RAM what does not fit, by nn.memory_tiers{gpu=%d+e6}"
      or "take %d+ MB on one of 2 GPUs, which has %d+ MB for them; .-start one process for each GPU"
    t.check(status == 1 and errors:find(message) and errors:find "^nnlua: [^\n]+\n$", errors)
  end
  -- Here activations exceed the memory, so recomputing some of them helps. Only if all activations
  -- and the optimizer's state count together, which are first used apart.
  words = "embd=384 heads=4 layers=8 vocab=300 batch=64 context=32 tile=4096 steps=1 eager=0 "
    .. "tokens=0"
  local status, _, errors = run("gpus=1 memory=640", words .. " keep=1")
  t.check(status == 1 and errors:find "use a smaller batch or nn.activations \"recompute\"", errors)
  same_as_cpu("gpus=1 memory=640", words)
end)

case("temporaries that fit on a GPU take nothing of the budget for RAM", function()
  local words = "embd=128 layers=2 batch=96 context=64 tile=1024 steps=2 eager=0 tokens=0"
  local budget = 40e6
  local limited = ("%s budget=%d"):format(words, budget)
  local function refused(description, more)
    local status, _, errors = run(description, limited .. more)
    t.check(status == 1 and errors:find "the temporaries of a compiled function", errors)
  end
  refused(nil, "")
  local errors = same_as_cpu("gpus=1", words, "report=1 budget=" .. budget)
  local used = tonumber(errors:match "RAM used (%d+)")
  t.check(used > 0 and used <= budget, used .. " bytes of RAM")
  refused("gpus=1", " memory=67108864")
  refused("gpus=1", " where=any")         -- CPU workers need them in RAM
end)

case("what memory tiers plan runs on CPU workers beside GPUs, with the same bits", function()
  local words = "layers=4 embd=128 vocab=300 batch=2 context=16 tokens=0"
  same_as_cpu("gpus=2", words, ("ram=6000000 disk=%s"):format(base))
end)

local small = "embd=128 layers=2 vocab=300 batch=2 context=16 steps=3"
case("what exceeds the GPU's memory is in RAM by a plan, with the same bits", function()
  local moved = {}
  local function planned(description, slots, more, gpu_words)
    local errors = same_as_cpu("gpus=1" .. description, small .. more,
                               ("slots=%d report=1 %s"):format(slots, gpu_words or ""))
    local read, written = errors:match "planned (%d+) (%d+)"
    moved[#moved + 1] = read + written
    t.check(read + 0 > 0 and written + 0 > 0, errors)
    return errors
  end
  planned("", 4e6, " tokens=0")
  local errors = planned("", 2e6, " tokens=0", "profile=1")
  t.check(errors:find "waiting for copies from RAM" and errors:find "RAM read: %d+ transfers",
          errors)
  t.check(moved[2] > 1.1 * moved[1], table.concat(moved, " "))
  planned("", 2e6, " tokens=2 dtype=bf16 accum=2", "streams=2")
  for i = 1, seeds - 1 do planned(" delays=" .. seed + i, 2e6, " tokens=0") end
  if all then planned("", 3e6, " eager=3 steps=5") end
end)

-- Runs with GPU slots above slots in RAM above the disk.
local three = ("slots=2000000 ram=%d disk=%s report=1 "):format(3e6, base)
case("what exceeds the GPU's memory and RAM is on the disk, with the same bits", function()
  local function planned(description, more, gpu_words)
    local errors = same_as_cpu("gpus=1" .. description, small .. more, three .. (gpu_words or ""))
    for _, link in ipairs {"planned", "disk"} do
      local read, written = errors:match(link .. " (%d+) (%d+)")
      t.check(read + 0 > 1e6 and written + 0 > 1e6, errors)
    end
    return errors
  end
  local errors = planned("", " tokens=0", "profile=1")
  for _, link in ipairs {"RAM read", "RAM write", "disk read", "disk write"} do
    t.check(errors:find(link .. ": %d+ transfers"), errors)
  end
  planned("", " tokens=2 dtype=bf16 accum=2", "streams=2")
  planned("", " tokens=0 eager=3 steps=5")
  for i = 1, seeds - 1 do planned(" delays=" .. seed + i, " tokens=0") end
end)

case("what exceeds the GPU's memory only is in RAM, although there is a disk", function()
  local errors = same_as_cpu("gpus=1", small .. " tokens=0",
                             ("slots=2000000 ram=%d disk=%s report=1"):format(2e8, base))
  local read, written = errors:match "planned (%d+) (%d+)"
  t.check(read + 0 > 1e6 and written + 0 > 1e6, errors)
  t.check(errors:find "disk 0 0\n", errors)
end)

case("a failing disk below RAM below a GPU ends a run with one error", function()
  local words = small .. " tokens=0"
  local message = "^nnlua: [^\n]*tile %d+ of [^\n]+ cannot be %a+ %a+ the disk folder[^\n]+\n$"
  for i = 1, all and 20 or 2 do
    local what = ("NNLUA_FAIL_DISK=%s:%d:5"):format(i % 2 == 0 and "write" or "read",
                                                    math.random(2, 40))
    local command = "ulimit -c 0; %s %s timeout -k 1 100 $NNLUA %s %s %s 2>%s/errors"
    local status, output = t.shell(command:format(devices "gpus=1", what, script, words, three,
                                                  base))
    local errors = files.read(base .. "/errors")
    t.check(status == 1 and errors:find(message), what .. ": " .. errors)
    t.check(output == expected(words):sub(1, #output), "wrong values, " .. what)
  end
end)

case("a run on a GPU above RAM above a disk resumes from its checkpoint", function()
  local runs = require("training").new()
  local settings = "model.embd=128 model.layers=2 save_every=2 "
  local tiers = "memory.gpu=2MB memory.ram=4MB memory.disk=. memory.disk_in_ram=true "
  local function train(environment, words)
    local status, output = runs.shell(("%s; (train %s %s)"):format(environment, settings, words))
    t.check(status == 0, output)
    return output
  end
  local gpu, cpu = "export" .. devices("gpus=1"):sub(4), "export" .. emulated.none:sub(4)
  local output = train(gpu, tiers .. "steps=2 out=part")
  t.check(output:find "planned: .- read and .- written" and output:find "written to the disk: ",
          output)
  train(gpu, tiers .. "steps=4 out=part resume=auto")
  train(cpu, "steps=2 out=cpu")
  train(cpu, "steps=4 out=cpu resume=auto")
  local function weights(out)
    return files.read(runs.folder .. "/" .. out .. "/checkpoint-000004/model.safetensors")
  end
  t.check(weights "part" == weights "cpu", "other weights")
end)

case("a budget for the GPU's memory that cannot be is refused", function()
  for more, message in pairs {
    ["slots=500000"] = "needs at least [%d.]+ MB of the GPU's memory .-but memory.gpu",
    ["slots=1900000000"] = "memory.gpu: 1.9 GB are too many, because 67.1 MB .-must remain",
    ["slots=2000000 where=cpu"] = "runs on the GPU only, but nn.run_tasks_on chose the CPU",
    ["slots=2000000 gpus=2"] = "plans the memory of one GPU for each process, but 2 are in use",
    ["slots=2000000 ram=900000 disk=" .. base] = "needs at least [%d.]+ MB of RAM .-largest tile "
      .. ".-but memory.ram",
    ["slots=2000000 ram=3000000 disk=/nowhere/disk"] = "/nowhere",
  } do
    local status, _, errors = run("gpus=2", small .. " tokens=0 gpus=1 " .. more)
    t.check(status == 1 and errors:find(message) and errors:find "^nnlua: [^\n]+\n$", errors)
  end
end)

case("a profile has the tasks of every GPU", function()
  local errors = same_as_cpu("gpus=2", "", "profile=1")
  t.check(errors:find "GPU 0" and errors:find "GPU 1", errors)
end)

case("with instant kernels, the cost of the tasks themselves is measured", function()
  local command = "%s timeout -k 1 100 $NNLUA %s/tests/gpu/driver.lua batch=4 steps=3"
  local status, output = t.shell(command:format(devices "gpus=1 memory=80000 instant=1", host.root))
  t.check(status == 0, output)
  local result = files.parse_json(output:match "{.*}")
  t.check(result.tasks > 500 and result.temporaries > 400, output)
  t.check(result.step_us[2] >= result.submission_us[2], output)
  t.check(kernels(1) >= 5 * result.tasks, "not every task was a launch")
end)

case("the C++ tests of the engine on GPUs pass", function()
  local status, output = t.shell(("%s timeout -k 1 100 %s/nnlua_tests '*on a GPU*'"):format(
    devices "gpus=2", t.program():match "^(.*)/"))
  t.check(status == 0 and output:find "All tests passed" and not output:find "skipped", output)
end)

-- Fails one call. The run ends with one error and no wrong value before it, or without any.
local function fail_call(what, gpus, words, gpu_words)
  words = words or ""
  local status, output, errors = run(("gpus=%d fail=%s"):format(gpus or 2, what),
                                     words .. (gpu_words or ""))
  what = ("fail=%s (NNLUA_TEST_SEED=%d):\n%s"):format(what, seed, errors)
  t.check(status == 0 or status == 1, ("status %d, %s"):format(status, what))
  t.check(output == expected(words):sub(1, #output), "wrong values, " .. what)
  if status == 0 then
    local on_cpu = errors:find "^nnlua: warning: no GPU is used[^\n]+\n$"
    t.check(output == expected(words) and (errors == "" or on_cpu), what)
  else
    t.check(errors:find "^nnlua: [^\n]+\n$", "not one line, " .. what)
    t.check(errors:find "unspecified launch failure" or errors:find "no memory"
            or errors:find "can use %d of 2 GPUs", what)
  end
  return status
end

case("a failing call of CUDA ends a run with one error and no wrong value", function()
  same_as_cpu("gpus=2", "")
  local calls, failed = {}, 0
  for name, count in pairs(counts()) do
    if name:find "^cuda" and count > 0 then calls[#calls + 1] = {name, count} end
  end
  table.sort(calls, function(a, b) return a[1] < b[1] end)
  t.check(#calls >= 25, #calls .. " functions were called")
  for i = 1, all and 5 * #calls or 8 do
    local name, count = unpack(calls[all and i % #calls + 1 or math.random(#calls)])
    failed = failed + fail_call(("%s:%d"):format(name, math.random(count)))
  end
  failed = failed + fail_call("kernel:" .. math.random(700))
  failed = failed + fail_call "cudaEventQuery:1"
  failed = failed + fail_call "cudaGetDeviceProperties:2"  -- the memory of one GPU is not known
  t.check(failed >= 3, failed .. " runs failed")
end)

case("a failing copy between RAM and the GPU ends a planned run with one error", function()
  local words, planned = small .. " tokens=0", " slots=2000000"
  same_as_cpu("gpus=1", words, planned)
  local counted, failed = counts(), 0
  for i = 1, all and 30 or 2 do
    local name = i % 3 == 2 and "cudaEventSynchronize" or "cudaMemcpyAsync"
    local call = math.random(math.floor(counted[name] / 2), counted[name])
    failed = failed + fail_call(("%s:%d"):format(name, call), 1, words, planned)
  end
  t.check(failed > 0, "no run failed")
end)

case("a run whose GPU fails resumes from its checkpoint, and ends as on the CPU", function()
  local runs = require("training").new()
  local function train(description, words)
    local environment = "export" .. (description and devices(description) or emulated.none):sub(4)
    return runs.shell(("%s; (train steps=12 save_every=3 out=%s)"):format(environment, words))
  end
  local function results(out)
    local losses = {}
    for _, event in ipairs(runs.events(out)) do
      if event.event == "step" then losses[event.step] = event.loss end
    end
    return losses, files.read(runs.folder .. "/" .. out .. "/checkpoint-000012/model.safetensors")
  end
  t.same(train(nil, "cpu"), 0)
  t.same(train("gpus=2", "whole"), 0)
  local middle = math.floor(kernels(2) / 2)
  local status, output = train("gpus=2 fail=kernel:" .. middle, "part")
  t.check(status == 1 and output:find "GPU %d failed: unspecified launch failure", output)
  t.check(output:find "last checkpoint is .-[Tt]o resume:\n .-resume=part\n", output)
  t.check(runs.newest "part", output)
  status, output = train("gpus=2", "part resume=auto")
  t.check(status == 0, output)
  local losses, weights = results "cpu"
  for _, out in ipairs {"whole", "part"} do
    local own_losses, own_weights = results(out)
    t.same(own_losses, losses)
    t.check(own_weights == weights, out .. " has other weights")
  end
end)

case("memory that CUDA refuses below the limit is found elsewhere", function()
  same_as_cpu("gpus=2", "")
  local first = counts().cudaMalloc
  same_as_cpu(("gpus=2 fail=cudaMalloc:%d:2"):format(first), "")
end)

t.finish()
