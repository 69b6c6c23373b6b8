-- What a run in less memory than it needs reports: transfers in profiles, traces, progress lines,
-- metrics and the report, each equal to what the disk counts.
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local files = require "nn.io.files"
local json = require "nn.io.json"
local log = require "nn.train.log"
local metrics = require "nn.train.metrics"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local text = {}
for i = 1, 600 do text[i] = ("%d and %d are numbers\n"):format(i, i * i) end
local corpus = t.folder() .. "/corpus"
files.write(corpus, table.concat(text))
local data = nn.data({text = corpus, batch = 4}, {context = 32})

local function build()
  local model = GPT2 {layers = 6, heads = 4, embd = 256, context = 32, vocab = data.vocab}
  local optim = nn.AdamW(model, {clip = 1})
  return model, optim, nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
end

-- Trains with these settings -> what it prints, its folder, and the change of nn.memory().disk.
local function train(...)
  local out, name = t.folder(), t.folder() .. "/printed"
  local cfg = nn.config({nn.run_fields {steps = 6, out = out, eval_every = 0, log_every = 1}},
                        {...})
  local before, disk = io.output(), nn.memory().disk
  io.output(name)
  local good, problem = pcall(function()
    local run = nn.run(cfg)
    if not run:plan(build, data.train) then return end
    local model, optim, step = build()
    run:track {model = model, optim = optim, data = data.train}
    for _ in run:steps() do run:record(step(data.train:batch())) end
    run:done {}
  end)
  io.output():close()
  io.output(before)
  if not good then error(problem, 0) end
  local moved, now = {}, nn.memory().disk
  for key, value in pairs(now) do moved[key] = value - disk[key] end
  return files.read(name), out, moved
end

local function events_of(out, kind)
  local list = {}
  for line in files.read(out .. "/metrics.jsonl"):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event.event == kind then list[#list + 1] = event end
  end
  return list
end

t.case("a run with enough memory reports no disk", function()
  local printed, out, moved = train "steps=3"
  t.check(not printed:find "disk" and not printed:find "stalled" and not printed:find "planned",
          printed)
  t.check(not files.read(out .. "/metrics.jsonl"):find "disk")
  t.same(moved, {used = 0, read = 0, written = 0, busy = 0, stalled = 0})
  local p = nn.profile(function() nn.ones(2, 2) end)
  t.same({p.links, p.idle.disk}, {{}, 0})
  t.check(not tostring(p):find "disk", tostring(p))
end)

-- A busy machine needs more than the default of 4 seconds; it would print that the search ended.
nn.memory_tiers {ram = "22MB", disk = t.folder(), disk_rate = "500MB", disk_in_ram = true,
                 plan_seconds = 60}
local _, _, step = build()
step(data.train:batch())
nn.sync()

local function contains(printed, pattern)
  t.check(printed:find(pattern), pattern .. " in\n" .. printed)
end

t.case("a disk that is too small is refused before the first step, and shown by --plan", function()
  t.check(files.free_bytes(t.folder()) > 1e6)
  t.same(files.free_bytes(t.folder() .. "/missing"), nil)
  local real = budget.disk_room
  local refused, printed
  budget.disk_room = function() return 1000 end
  local good, problem = pcall(function()
    refused = select(2, pcall(train, "steps=3"))
    printed = train "plan=true"
  end)
  budget.disk_room = real
  if not good then error(problem, 0) end
  t.check(tostring(refused):find("the training cannot fit: it needs [%d.]+ MB %(%d+ bytes%) on the "
    .. "disk, but .- has 1.0 kB %(1000 bytes%) available; free some space, choose another"),
    tostring(refused))
  contains(printed, "disk +[%d.]+ MB, but .- has only 1.0 kB available")
  t.check(not train("plan=true"):find "available", "the disk suffices")
end)

t.case("the profile and the trace of steps contain every transfer", function()
  local file, before = t.folder() .. "/trace.json", nn.memory().disk
  local profile = nn.trace(file, function() for _ = 1, 3 do step(data.train:batch()) end end)
  local after = nn.memory().disk
  local sums, count, last, rows, kinds = {}, 0, {}, {}, {}
  local bars = {}
  for _, e in ipairs(json.read(file).traceEvents) do
    if e.name == "thread_name" then rows[e.tid] = e.args.name end
    if e.cat == "transfer" then bars[#bars + 1] = e end
  end
  table.sort(bars, function(a, b) return a.ts < b.ts end)
  for _, e in ipairs(bars) do
    local link = rows[e.tid]:match "^disk %a+"
    sums[link], count, kinds[e.name] = (sums[link] or 0) + e.args.bytes, count + 1, true
    t.check(e.ts + 1e-3 >= (last[e.tid] or 0), "bars overlap in row " .. rows[e.tid])
    t.check(e.ts >= 0 and e.ts + e.dur <= profile.seconds * 1e6 + 1 and e.args["waited ms"] >= 0)
    last[e.tid] = e.ts + e.dur
  end
  t.same(sums, {["disk read"] = after.read - before.read,
                ["disk write"] = after.written - before.written})
  t.check(kinds.weights and kinds.optimizer, "bars of weights and of the optimizer's state")
  t.same({#profile.links, profile.links[1].name, profile.links[1].bytes, profile.links[2].bytes},
         {2, "disk read", sums["disk read"], sums["disk write"]})
  t.same(profile.links[1].transfers + profile.links[2].transfers, count)
  for _, link in ipairs(profile.links) do
    t.check(link.busy > 0 and link.busy <= profile.seconds and link.waited >= 0, link.name)
  end
end)

t.case("busy and idle time add up to the elapsed time, and the disk is a cause", function()
  local p = nn.profile(function() for _ = 1, 3 do step(data.train:batch()) end end)
  local all, sum = p.seconds * #p.workers, p.busy
  for _, seconds in pairs(p.idle) do sum = sum + seconds end
  t.check(math.abs(sum - all) < 1e-3 * all, ("%g is not %g"):format(sum, all))
  t.check(p.idle.disk > 0.05 * all, tostring(p))
  local printed, shares = tostring(p), 0
  for share in printed:gmatch "([%d.]+)%%" do shares = shares + tonumber(share) end
  for _, w in ipairs(p.workers) do shares = shares - 100 * w.busy / p.seconds end
  t.check(math.abs(shares - 100) < 3, printed)
  for _, line in ipairs {"\nwaiting for the disk ", "\ndisk read: %d+ transfers of ",
                         "\ndisk write: %d+ transfers of "} do
    t.check(printed:find(line), line .. " in\n" .. printed)
  end
end)

t.case("--plan compares what a step moves with a lower bound and with a simple cache", function()
  local printed = train "plan=true"
  local total = "([%d.]+) MB %b() a step"
  local read = printed:match("\n  read +" .. total)
  local written = printed:match("\n  written +" .. total)
  local both, ratio, least, simple = printed:match("\n  both +([%d.]+) MB a step, ([%d.]+) times "
    .. "the lower bound of ([%d.]+) MB\n +evicting the least recently used tiles would move "
    .. "([%d.]+) MB\n")
  t.check(simple, printed)
  t.near(tonumber(both), read + written, {abs = 1.1})
  t.near(tonumber(ratio), both / least, {abs = 0.1})
  t.check(tonumber(least) <= tonumber(both) and tonumber(least) <= tonumber(simple), printed)
  t.check(not printed:find "largest batch", printed)
end)

t.case("a plan that needs no disk reports the memory and no transfers", function()
  local printed = tostring(nn.plan_step(function(batch)
    local layer, input = nn.Linear(100, 100), nn.zeros(batch, 100)
    return function() return nn.no_grad(layer, input):sum() end, {weights = layer, other = {input}}
  end))
  t.check(printed:find "\navailable +22 MB: it fits\ntime +about", printed)
  t.check(not printed:find "disk" and not printed:find "of the speed", printed)
end)

t.case("wrong settings of the memory are errors that say what to set", function()
  local function says(message, ...)
    local words = {...}
    t.fails(function() nn.use_memory(nn.config({nn.memory_fields()}, words)) end, message)
  end
  says("'memory.ram' must be a size such as 500MB or 6GB, not '6XB'", "memory.ram=6XB")
  says("'memory.ram' must be a size such as 500MB or 6GB, not '0'", "memory.ram=0", "memory.disk=.")
  for _, name in ipairs {"ram", "disk_rate", "gpu"} do
    says(("'memory.%s' needs a unit, such as 25GB or 25MB, not '25'"):format(name),
         ("memory.%s=25"):format(name), "memory.disk=.")
  end
  says("'memory.disk_rate' must be a size such as 500MB or 6GB, not 'fast'",
       "memory.disk_rate=fast")
  says("memory.ram=6GB has an effect only with a folder for what does not fit; set "
       .. "memory.disk=FOLDER, or clear it by memory.ram=", "memory.ram=6GB")
end)

local finished                   -- what train() returned
local function finished_run()
  finished = finished or {train()}
  return unpack(finished)
end

t.case("a run reports its traffic beside the plan, while it runs and at its end", function()
  local printed, out, moved = finished_run()
  contains(printed, "\nplanned: [%d.]+ m?s a step, [%d.]+ MB read and [%d.]+ MB written\n"
           .. "first step [%d.]+ m?s %(planned and recorded%)\nstep 1/6  loss [%d.]+  lr [%d.e-]+  "
           .. "norm [%d.]+  mem [%d.]+ MB\n")
  contains(printed, "\nstep 4/6 .*  disk [%d.]+ MB  stalled %d+%%  eta")
  contains(printed, "\nmeasured: [%d.]+ m?s a step, [%d.]+ MB read and [%d.]+ MB written\n"
           .. "planned: ")
  contains(printed, "\ndisk: busy %d+%% of the time, %d+ MB/s; workers waited for it %d+%% of "
           .. "theirs")
  contains(printed, "\nwritten to the disk: [%d.]+ [MG]B in all, [%d.]+ [GT]B a day at this rate")
  local steps, done = events_of(out, "step"), events_of(out, "done")[1].disk
  local planned = events_of(out, "start")[1].planned
  t.same(steps[1].disk_read, nil)
  for i, e in ipairs {unpack(steps, 2)} do
    t.check(e.disk_read > 0 and e.disk_written > 0, "step " .. i)
    t.check(e.disk_busy > 0 and e.disk_busy <= 1 and e.stalled >= 0 and e.stalled <= 1, "shares")
    t.check(i == 1 or e.disk_total >= steps[i].disk_total, "all bytes")
  end
  t.check(done.total >= moved.written and done.per_day > done.written * 1000)
  -- On a busy machine some transfers of the first step are counted in the second one, and the mean
  -- has them and the last update.
  for _, name in ipairs {"read", "written"} do
    local found = {}
    for i, e in ipairs {unpack(steps, 3)} do found[i] = e["disk_" .. name] end
    table.sort(found)
    t.near(found[2], planned[name], {rel = 0.1})
    local mean = done[name] / planned[name]
    t.check(mean > 0.9 and mean < 1.1 + 2 / #found, ("%s: %g, %g planned"):format(
      name, done[name], planned[name]))
  end
  local board = ""
  for _, name in ipairs(files.list(out)) do
    if name:find "^events" then board = board .. files.read(files.join(out, name)) end
  end
  for _, name in ipairs {"disk_read", "disk_written", "disk_busy", "stalled"} do
    t.check(board:find(name, 1, true), "TensorBoard without " .. name)
  end
end)

local function seconds_of(shown)
  local number, unit = shown:match "^([%d.]+) (m?s)"
  return tonumber(number) * (unit == "s" and 1 or 1e-3)
end
local function tokens_of(shown)
  local number, unit = shown:match "^([%d.]+)(k?)$"
  return tonumber(number) * (unit == "k" and 1e3 or 1)
end

t.case("the report of a run shows traffic, waits and wear", function()
  local _, out = finished_run()
  local facts, run = {}, metrics.read(out)
  for _, f in ipairs(metrics.facts(run)) do facts[f[1]] = f[2] end
  t.check(facts["time per step"]:find " m?s, [%d.]+ m?s planned$", facts["time per step"])
  t.check(facts["read per step"]:find " MB, [%d.]+ MB planned$", facts["read per step"])
  t.check(facts["written per step"]:find " MB, [%d.]+ MB planned$", facts["written per step"])
  t.check(facts["workers waited for the disk"]:find "^%d+%%$")
  t.check(facts["written to the disk"]:find " a day$")
  t.check(facts["first step"], "first step")
  t.near(seconds_of(facts["time per step"]) * tokens_of(facts["tokens/s"]),
         data.train:batch_tokens(), {rel = 0.01})
  local page = files.read(out .. "/report.html")
  local shown = files.parse_json(page:match '<script id="data".->(.-)</script>')[1]
  for _, name in ipairs {"disk_read", "disk_written", "disk_busy", "stalled"} do
    t.same(#shown.series[name].step, 5, name)
    t.check(page:find('"' .. name .. '"', page:find "function draw", true), name)
  end
  t.check(math.abs(shown.series.stalled.value[5] - 100 * run.series.stalled.value[5]) < 1e-3)
  -- Of a run that still runs, from its last steps.
  run.disk = nil
  facts = {}
  for _, f in ipairs(metrics.facts(run)) do facts[f[1]] = f[2] end
  t.check(facts["time per step"] and facts["read per step"]:find "planned$")
end)

t.case("the time per step and the tokens per second of a report are of the same steps", function()
  local folder, lines = t.folder(), {'{"event":"start","step":0}'}
  local function shown()
    files.write(folder .. "/metrics.jsonl", table.concat(lines, "\n") .. "\n")
    local facts = {}
    for _, f in ipairs(metrics.facts(metrics.read(folder))) do facts[f[1]] = f[2] end
    return facts["first step"], facts["time per step"], facts["tokens/s"]
  end
  local line = ('{"event":"step","step":%d,"seconds":%g,"ms":%g,"tokens_per_s":%g,"disk_read":1e6,'
    .. '"disk_written":1e6,"stalled":0}')
  lines[2] = '{"event":"first_step","step":1,"seconds":54}'
  t.same({shown()}, {"54.0 s"})
  lines[3] = '{"event":"step","step":1,"seconds":54}'
  lines[4] = line:format(10, 60, 650, 288 / 0.65)
  lines[5] = line:format(20, 67, 640, 288 / 0.64)
  t.same({shown()}, {"54.0 s", "640 ms", "450"})
  -- A resumed run has a first step again.
  lines[6] = '{"event":"resume","step":20}'
  lines[7] = '{"event":"first_step","step":21,"seconds":50}'
  lines[8] = line:format(30, 56.5, 650, 288 / 0.65)
  t.same({shown()}, {"50.0 s", "650 ms", "443"})
  lines[9] = '{"event":"done","step":30,"tokens_per_s":480,"disk":{"seconds":0.6,"read":1,'
    .. '"written":1,"stalled":0,"total":1,"per_day":1}}'
  t.same({shown()}, {"50.0 s", "600 ms", "480"})
end)

t.case("bytes written to the disk are summed over the processes of a run", function()
  local folder = t.folder()
  files.write(folder .. "/metrics.jsonl", [[{"event":"start","step":0}
{"event":"step","step":1,"disk_total":100}
{"event":"stopped","step":1,"disk":{"total":150,"seconds":1,"read":1,"written":2,"stalled":0,]]
    .. [["per_day":5}}
{"event":"resume","step":1}
{"event":"step","step":2,"disk_total":30}
]])
  t.same(metrics.read(folder).written, 180)
end)

t.case("the traffic of a large batch is extrapolated from smaller ones", function()
  local small = {seconds = 2, loaded = {weights = 10, activations = 4}}
  local large = {seconds = 3, loaded = {weights = 10, activations = 8}}
  t.same(batches.line(small, large, 2), {seconds = 5, loaded = {weights = 10, activations = 16}})
  t.same(batches.line(large, small, 2).loaded.activations, 0)
  t.same(batches.line(nil, nil, 2), nil)
end)

t.case("a progress line without traffic is as before", function()
  local fields = {step = 1, steps = 2, loss = 1, memory = 1e6, eta = 5}
  t.same(log.line(fields), "step 1/2  loss 1.0000  mem 1.0 MB  eta 5s")
  fields.disk_read, fields.disk_written, fields.stalled = 2e9, 1e9, 0.25
  t.same(log.line(fields), "step 1/2  loss 1.0000  mem 1.0 MB  disk 3.0 GB  stalled 25%  eta 5s")
end)

t.finish()
