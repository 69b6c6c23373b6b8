-- Rates of a run: windows that no pause shortens, and a matrix-product rate of the machine that is
-- measured again when a run exceeds it.
-- Runs alone: it measures seconds.
local nn = require "nn"
local t = require "nn.test"
local files, metrics = require "nn.io.files", require "nn.train.metrics"
local kept_rate, step_plan = require "nn.train.kept_rate", require "nn.plan.step"
local profile, rates = require "nn.measure.profile", require "nn.train.rate"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local printed = require "printed"

-- Calls f while the machine's measured GFLOP/s are the given ones, one after the other -> how many
-- were measured. cache: the file with kept rates; nil: none.
local function with_measurements(list, f, cache)
  local measure, count = profile.product_gflops, 0
  function kept_rate.path() return cache end
  profile.product_gflops = function()
    count = math.min(count + 1, #list)
    return list[count]
  end
  local good, problem = pcall(f)
  profile.product_gflops = measure
  if not good then error(problem, 0) end
  return count
end

-- A loader of 1000 tokens a step and a model of 1e9 FLOPs a token: 1e12 FLOPs a step.
local data = {context = 10, batch_tokens = function() return 1000 end}
local model = {flops_per_token = function() return 1e9 end}

-- A meter whose first step, number 0, has just ended.
local function new_meter()
  local rate = rates.new(model, data)
  rate:read(0, 0, false)
  return rate
end

t.case("results that are read at once do not make a run faster", function()
  with_measurements({1e6}, function()
    local rate = new_meter()
    for step = 1, 50 do                                    -- 0.1 s each
      t.near(rate:speed(step, 0.1 * step, false).ms, 100, {abs = 1e-6})
      rate:mark(step, 0.1 * step, false)
    end
    for step = 51, 52 do                                   -- both ended before the first was read
      t.near(rate:speed(step, 5.1 + 1e-6 * step, true).tokens_per_s, 10000)
      rate:mark(step, 5.1 + 1e-6 * step, true)
    end
    local speed = rate:speed(53, 5.3, false)
    t.near(speed.ms, 100, {abs = 1e-3})
    rate:mark(53, 5.3, false)
    t.near(rate:speed(54, 5.3 + 1e-5, false).ms, 100, {rel = 0.15})   -- a window of a second
  end)
end)

t.case("the first step, which records and plans, has no speed and is in no other", function()
  with_measurements({1e6}, function()
    local rate = rates.new(model, data)
    t.same({rate:read(11, 54, false), rate:speed(11, 54, false)}, {true, {}})
    rate:mark(11, 54, false)
    for step = 12, 60 do                                   -- 0.65 s each
      local seconds = 54 + 0.65 * (step - 11)
      t.same(rate:read(step, seconds, false), false)
      t.near(rate:speed(step, seconds, false).ms, 650, {abs = 1e-3})
      rate:mark(step, seconds, false)
    end
    t.near(rate:mean(60, 54 + 49 * 0.65), 0.65)
  end)
end)

t.case("results of the first steps that a pause waits for have no speed, but a mean", function()
  with_measurements({1e6}, function()
    local rate = rates.new(model, data)
    t.same(rate:mean(10, 0), nil)
    rate:read(11, 54, true)
    t.same({rate:speed(11, 54, true), rate:mean(11, 54)}, {{}, nil})
    rate:read(12, 54.0001, true)
    t.same(rate:speed(12, 54.0001, true), {})
    rate:mark(12, 54.2)                                    -- the end of all tasks
    t.near(rate:mean(12, 54.2), 0.2)
    rate:read(13, 54.3, true)
    t.near(rate:speed(13, 54.3, true).ms, 100, {abs = 1e-3})
  end)
end)

t.case("a run faster than the machine's rate has the machine measured again", function()
  local count = with_measurements({200, 300, 4000, 5000}, function()
    local rate = new_meter()
    t.same(rate.gflops, 200)
    local events = {}
    local function measure(achieved) events[#events + 1] = rate:measure(achieved) end
    t.near(rate:speed(1, 1, false, measure).mfu, 0.25, {abs = 1e-4})          -- 1000 GFLOP/s
    t.same(events, {{product_gflops = 4000, was = 200}})
    t.near(rate:speed(2, 4, false, measure).mfu, 0.125, {abs = 1e-4})
    t.same(#events, 1)
  end)
  t.same(count, 3)
end)

t.case("while a run is faster than the machine's rate, its MFU is unknown", function()
  with_measurements({200, 400, 300}, function()
    local rate, again = new_meter(), 0
    local function measure(achieved)
      again = again + 1
      rate:measure(achieved)
    end
    t.same(rate:speed(1, 1, false, measure).mfu, nil)      -- 1000 GFLOP/s, 400 are measured
    t.same(rate:speed(2, 2, false, measure).mfu, nil)      -- not measured again yet
    t.same({rate.gflops, again}, {400, 1})
    t.near(rate:speed(4, 10, false, measure).mfu, 1, {abs = 1e-4})
  end)
end)

t.case("runs on a machine have one rate for each dtype, which is measured once", function()
  local cache, rate = t.folder() .. "/nnlua/rates.json", nil
  local load = step_plan.load
  function step_plan.load() return 0.1, false end
  t.same(with_measurements({200}, function() rate = new_meter() end, cache), 1)
  t.same(rate.gflops, 200)
  t.same(with_measurements({999}, function() rate = new_meter() end, cache), 0)
  t.same(rate.gflops, 200)
  with_measurements({4000}, function()                     -- a faster run has it measured again
    rate:speed(1, 1, false, function(achieved) rate:measure(achieved) end)
  end, cache)
  with_measurements({1}, function() rate = new_meter() end, cache)
  t.same(rate.gflops, 4000)
  local bf16 = setmetatable({config = {dtype = "bf16"}}, {__index = model})
  with_measurements({7000}, function() rate = rates.new(bf16, data) end, cache)
  t.same(rate.gflops, 7000)
  files.write(cache, '{"of another": 3, "f32": ')          -- as if the disk had been full
  with_measurements({300}, function() rate = new_meter() end, cache)
  t.same(rate.gflops, 300)
  step_plan.load = load
end)

t.case("a rate that other programs disturbed is measured again by the next run", function()
  local cache, rate, load = t.folder() .. "/rates.json", nil, step_plan.load
  local expected = {{200, true, 200}, {150, true, 200}, {500, false, 500}, {900, false, 500}}
  for _, run in ipairs(expected) do
    function step_plan.load() return 1, run[2] end
    with_measurements({run[1]}, function() rate = new_meter() end, cache)
    t.same(rate.gflops, run[3])
  end
  step_plan.load = load
end)

t.case("the machine is measured again later after each useless measurement", function()
  with_measurements({100}, function()
    local rate, calls = new_meter(), 0
    for step = 1, 65 do
      rate:speed(step, step, false, function(achieved)
        calls = calls + 1
        rate:measure(achieved)
      end)
      rate:mark(step, step, false)
    end
    t.same(calls, 3)
  end)
end)

-- A run with log_every=1 whose loop is slower than its steps, so that all results are there when a
-- pause reads them.
local function slow_loop(gflops)
  local folder = t.folder()
  files.write(folder .. "/text", ("some text. "):rep(100))
  local cfg = nn.config({nn.run_fields {steps = 40, log_every = 1, out = folder .. "/run",
                                        save_every = 0}}, {})
  local step_model = nn.Linear(8, 8)
  step_model.flops_per_token = function() return 1e6 end
  local optim = nn.SGD(step_model, {lr = 0.1})
  local loader = nn.data({text = folder .. "/text", batch = 2}, {context = 8})
  local step = nn.compile(function()
    local loss = step_model(nn.ones(2, 8)):sum()
    loss:backward()
    optim:step()
    return loss
  end)
  with_measurements(gflops, function()
    local run = nn.run(cfg)
    run:track {model = step_model, optim = optim, data = loader.train}
    for _ in run:steps() do
      loader.train:batch()
      run:record(step())
      local from = nn.now()
      while nn.now() < from + 0.02 do nn.sync() end
      run:every(10, function() end)
    end
    run:done {}
  end)
  return folder .. "/run"
end

t.case("no rate in metrics.jsonl is far above the others, also before a pause", function()
  local run = metrics.read(slow_loop {1e6})
  local values = {unpack(run.series.tokens_per_s.value)}
  t.same(#values, 39)                    -- all but the first
  table.sort(values)
  local most = 16 / 0.02                 -- tokens of a step by its shortest time in slow_loop()
  t.check(values[39] < 1.2 * most, ("%g, at most %g"):format(values[39], most))
end)

-- A run of 12 steps of 0.05 s, 16 tokens each, whose first step takes two seconds more -> what it
-- prints, and its folder.
local function slow_start()
  local folder = t.folder()
  files.write(folder .. "/text", ("some text. "):rep(100))
  local cfg = nn.config({nn.run_fields {steps = 12, log_every = 1, out = folder .. "/run",
                                        save_every = 0}}, {})
  local layer = nn.Linear(8, 8)
  local loader = nn.data({text = folder .. "/text", batch = 2}, {context = 8})
  local text = printed(function()
    local run = nn.run(cfg)
    run:track {model = layer, data = loader.train}
    for n in run:steps() do
      local from = nn.now()
      local loss = layer(nn.ones(2, 8)):sum()
      while nn.now() < from + (n == 1 and 2 or 0.05) do nn.sync() end
      run:record(loss)
      run:every(5, function() end)
    end
    run:done {}
  end)
  return text, folder .. "/run"
end

t.case("a slow first step is stated once, and in no line, file or total of the run", function()
  local output, folder = slow_start()
  t.same(select(2, output:gsub("first step", "")), 1, output)
  t.check(output:find "\nfirst step 2%.%d+ s\nstep  1/12  loss [-%d.]+  mem [%d.]+ %a+\n",
          output)
  local times = 0
  for ms in output:gmatch " ([%d.]+) ms " do
    times = times + 1
    t.check(tonumber(ms) < 500, output)
  end
  t.check(times > 8, output)
  local run, first, done = metrics.read(folder), nil, nil
  for line in files.read(folder .. "/metrics.jsonl"):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event.event == "first_step" then first = event end
    if event.event == "done" then done = event end
    t.check(event.event ~= "step" or (event.ms or 0) < 500, line)
  end
  t.check(first.step == 1 and first.seconds >= 2 and first.seconds < 3, first.seconds)
  t.check(done.tokens_per_s > 100 and done.tokens_per_s <= 16 / 0.05, done.tokens_per_s)
  local facts = {}
  for _, fact in ipairs(metrics.facts(run)) do facts[fact[1]] = fact[2] end
  t.check(facts["first step"]:find "^2%.%d+ s$", facts["first step"])
  t.near(tonumber(facts["tokens/s"]), done.tokens_per_s, {abs = 1})
end)

t.case("a new measurement of the machine corrects the MFU values before it", function()
  local folder = t.folder() .. "/corrected"
  files.make_folder(folder, "folder")
  local lines = {
    '{"event":"start","step":0}', '{"event":"step","step":1,"seconds":1,"mfu":0.5}',
    '{"event":"resume","step":1}', '{"event":"step","step":2,"seconds":1,"mfu":0.8}',
    '{"event":"rate","step":3,"product_gflops":200,"was":100}',
    '{"event":"step","step":3,"seconds":2,"mfu":0.6}',
  }
  files.write(folder .. "/metrics.jsonl", table.concat(lines, "\n") .. "\n")
  t.same(metrics.read(folder).series.mfu.value, {0.5, 0.4, 0.6})
end)

t.case("a run logs that the machine was measured again, and no MFU above 1", function()
  local values, found = {}, nil
  for line in files.read(slow_loop {1e-4, 1e6} .. "/metrics.jsonl"):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event.event == "rate" then found = event end
    if event.event == "step" then values[#values + 1] = event.mfu end
  end
  t.same({found.was, found.product_gflops}, {1e-4, 1e6})
  for line in files.read(slow_loop {1e-4, 2e-4} .. "/metrics.jsonl"):gmatch "[^\n]+" do
    values[#values + 1] = files.parse_json(line).mfu       -- measured too low, also later
  end
  for _, mfu in ipairs(values) do t.check(mfu <= 1, mfu) end
end)

t.finish()
