-- Groups of kernels as CUDA graphs (nn.devices{cuda_graphs=true}), on emulated GPUs: the bits are
-- those of kernels that are started one by one, and where CUDA refuses a graph, they are.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local emulated = require "emulated"
local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or os.time() % 100000
math.randomseed(seed)
local base = t.folder()

local known = {}
local function expected(words)
  known[words] = known[words] or select(2, emulated.train(nil, words, base))
  return known[words]
end

-- Trains with graphs -> the counts of calls and the errors. The output must be that of the CPU.
local function same_as_cpu(description, words, gpu_words)
  local all = ("%s graphs=1 %s"):format(words, gpu_words or "")
  local status, output, errors = emulated.train(description, all, base)
  t.check(status == 0, description .. ": " .. errors)
  t.same(output, expected(words))
  return emulated.counts(base), errors
end

local function kernels_of(counts, gpus)
  local sum = 0
  for i = 0, gpus - 1 do sum = sum + counts["kernels_" .. i] end
  return sum
end

emulated.case("graphs give the CPU's bits on any number of GPUs", function()
  local cases = {[1] = "steps=5", [2] = "steps=5 dtype=bf16 accum=2 eager=3", [4] = ""}
  for gpus, words in pairs(cases) do
    local counts, errors = same_as_cpu("gpus=" .. gpus, words)
    t.same(errors, "")
    t.check(counts.cudaGraphLaunch > 0, "no graph was started")
    t.check(counts.start_kernel < kernels_of(counts, gpus), "graphs contained no kernel")
    t.same(counts.cudaGraphExecDestroy, counts.cudaGraphInstantiate)
    t.same(counts.cudaGraphDestroy, counts.cudaStreamBeginCapture)
  end
end)

emulated.case("graphs give the CPU's bits with random delays, streams, eviction and a profile",
              function()
  local function launched(...)
    local counts = same_as_cpu(...)
    t.check(counts.cudaGraphLaunch > 0, "no graph was started")
    return counts
  end
  for i = 1, 2 do launched(("gpus=2 delays=%d"):format(seed + i), "steps=4", "streams=" .. i) end
  local large = "embd=256 layers=4 vocab=300 steps=4 tokens=0"
  t.check(launched("gpus=1", large, "memory=67108864").cudaGraphExecUpdate > 0)
  launched("gpus=1", "steps=8", "profile=2")       -- while one is on, tasks are not in groups
  launched("gpus=1", "steps=4 tile=256 dtype=bf16 gradients=bf16")
end)

emulated.case("a graph that does not change is started as it is", function()
  -- Without dropout, only the tasks of AdamW, which count steps, change from step to step.
  local words = "dropout=0 eager=0 tokens=0 batch=2 tile=64 "
  local function recordings(steps)
    local counts = same_as_cpu("gpus=1", words .. "steps=" .. steps)
    return counts.cudaStreamBeginCapture, counts.cudaGraphLaunch
  end
  local few, launched_few = recordings(4)
  local many, launched_many = recordings(14)
  local recorded, launched = (many - few) / 10, (launched_many - launched_few) / 10
  t.check(launched <= 4, ("%g graphs a step"):format(launched))
  t.check(recorded >= 1 and recorded < launched,
          ("%g of %g graphs were recorded in a step"):format(recorded, launched))
end)

-- Functions whose failure makes a group run without a graph.
local refusals = {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
                  "cudaGraphLaunch"}
emulated.case("where CUDA refuses a graph, its kernels start one by one, with a message", function()
  local counts = same_as_cpu("gpus=1", "steps=4")
  for _, name in ipairs(refusals) do
    -- 900: not permitted while a stream records.
    local description = ("gpus=1 fail=%s:%d:900"):format(name, math.random(counts[name]))
    local _, errors = same_as_cpu(description, "steps=4")
    local message = "^nnlua: a group of kernels runs without a CUDA graph: %s: [^\n]+\n$"
    t.check(errors:find(message:format(name)), description .. ": " .. errors)
  end
  -- The last kernels are recorded, those of a step's updates; or they are of eager tasks.
  local refused = 0
  for i = 1, 40 do
    local description = ("gpus=1 fail=start_kernel:%d:900"):format(counts.start_kernel - 5 * i)
    local status, output, errors = emulated.train(description, "steps=4 graphs=1", base)
    local is_recorded = errors:find "^nnlua: a group of kernels runs without .- a kernel: [^\n]+\n$"
    t.check(status == (is_recorded and 0 or 1) and errors:find "^[^\n]+\n$", errors)
    t.check(output == expected("steps=4"):sub(1, #output), "wrong values")
    refused = refused + (is_recorded and 1 or 0)
    if refused == 2 then break end
  end
  t.same(refused, 2)
  -- An update that is not possible only costs a new graph.
  local call = math.random(counts.cudaGraphExecUpdate)
  local _, errors = same_as_cpu(("gpus=1 fail=cudaGraphExecUpdate:%d:910"):format(call), "steps=4")
  t.same(errors, "")
end)

emulated.case("a kernel that fails within a graph ends the run with one error", function()
  local counts = same_as_cpu("gpus=1", "steps=4")
  for _ = 1, 2 do
    -- Not the last ones: the count includes kernels that measure rates, of which none fails.
    local call = math.floor(counts.kernels_0 * (0.5 + 0.35 * math.random()))
    local description = "gpus=1 fail=kernel:" .. call
    local status, output, errors = emulated.train(description, "steps=4 graphs=1", base)
    t.check(status == 1 and errors:find "^nnlua: [^\n]*unspecified launch failure[^\n]*\n$",
            description .. ": " .. errors)
    t.check(output == expected("steps=4"):sub(1, #output), "wrong values")
  end
end)

-- Runs a script -> its output and errors together. It must succeed.
local function output_of(script, environment)
  files.write(base .. "/script.lua", script)
  local status, output = t.shell(("%s timeout 60 $NNLUA %s/script.lua 2>&1"):format(environment,
                                                                                   base))
  t.same(status, 0, output)
  return output
end
local function on_gpu(script)
  local output = output_of(script, emulated.devices("gpus=1 delays=" .. seed, base))
  t.check(emulated.counts(base).cudaGraphLaunch > 0, "no graph was started")
  return output
end

emulated.case("a compiled function may be dropped while another one runs", function()
  local script = [[
    local nn = require "nn"
    nn.devices {cuda_graphs = true}
    local function new(k) return nn.compile(function(x) return ((x * k):exp() + x):sum() end) end
    local x, kept, sums = nn.arange(64):to "f32" / 64, new(1), {}
    for i = 1, 40 do
      local other = new(i % 3)
      for _ = 1, 4 do sums[#sums + 1] = other(x) end
      sums[#sums + 1] = kept(x)
      other = nil
      collectgarbage()
    end
    for i, sum in ipairs(sums) do io.write(("%.9g"):format(sum:item()), "\n") end
  ]]
  local on_cpu = output_of(script, emulated.none)
  t.same(on_gpu(script), on_cpu)
  local counts = emulated.counts(base)
  t.same(counts.cudaGraphExecDestroy, counts.cudaGraphInstantiate)
end)

-- A group runs without a graph once, records it in its second run, and starts it as it is from the
-- third on.
emulated.case("a wrong token id is an error in every run of a group", function()
  for wrong = 1, 5 do
    local output = on_gpu(([[
      local nn = require "nn"
      nn.devices {cuda_graphs = true}
      local table_ = nn.rand({8, 4}, {axes = "vocab,embd"})
      local f = nn.compile(function(ids) return (nn.embedding(ids, table_) * 2):exp():sum() end)
      local right = nn.zeros({3}, {dtype = "i32"})
      local bad = nn.tensor({0, 99, 1}, {dtype = "i32"})
      for i = 1, 6 do
        local sum = f(i == %d and bad or right)
        local good, value = pcall(sum.item, sum)
        print(good and value or value:match "token id[^\n]*" or value)
      end
    ]]):format(wrong))
    local lines = {}
    for line in output:gmatch "[^\n]+" do lines[#lines + 1] = line end
    t.same(#lines, 6)
    for i, line in ipairs(lines) do
      t.check(i == wrong and line:find "99 is outside the vocabulary of 8"
              or i ~= wrong and line == lines[wrong == 1 and 2 or 1], output)
    end
  end
end)

t.finish()
