-- Profiles and traces: times add up, every task has its op and layer, and the trace is in Chrome's
-- Trace Event Format.
local files = require "nn.io.files"
local json = require "nn.io.json"
local layer = require "nn.core.layer_path"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local folder = t.folder()
local file = files.join(folder, "trace.json")

local function training()
  local model = GPT2 {layers = 2, heads = 2, embd = 32, context = 16, vocab = 64}
  local optim = nn.AdamW(model, {clip = 1})
  local step = nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
  local ids = nn.uniform({4, 16}, {low = 0, high = 64, axes = "batch,time"}):to "i32"
  return step, ids, model
end

-- The events of a trace by kind: X, s, f, M; names of rows by tid.
local function read_trace()
  local by, rows = {X = {}, s = {}, f = {}, M = {}}, {}
  for _, e in ipairs(json.read(file).traceEvents) do
    table.insert(by[e.ph] or error("an event of kind " .. tostring(e.ph)), e)
    if e.name == "thread_name" then rows[e.tid] = e.args.name end
  end
  return by, rows
end

local function tasks_of(by)
  local list = {}
  for _, e in ipairs(by.X) do
    if e.cat == "task" then list[#list + 1] = e end
  end
  return list
end

local function layers_by_op(list)
  local out = {}
  for _, e in ipairs(list) do
    out[e.args.op] = out[e.args.op] or {}
    out[e.args.op][e.args.layer] = true
  end
  return out
end

local function idle_of(p)
  return p.idle.data + p.idle.dependencies + p.idle.nothing + p.idle.engine
end

local step, ids, model = training()
step(ids, ids)
local profile = nn.trace(file, function() for _ = 1, 3 do step(ids, ids) end end)
local by, rows = read_trace()
local tasks = tasks_of(by)

t.case("a trace is strict JSON with a bar for every task, in a named row", function()
  t.same(#tasks, profile.recorded)
  t.check(profile.recorded > 3 * 100, profile.recorded .. " tasks")
  t.same(rows[0], "main thread")
  local busy = 0
  for i, w in ipairs(profile.workers) do t.same(rows[i], w.name) end
  for _, e in ipairs(tasks) do
    t.check(e.tid >= 1 and e.tid <= #profile.workers, "row " .. e.tid)
    t.check(e.ts >= 0 and e.dur >= 0 and e.ts + e.dur <= profile.seconds * 1e6 + 1, "its time")
    busy = busy + e.dur * 1e-6
  end
  t.check(math.abs(busy - profile.busy) < 1e-5 + 1e-6 * profile.busy, busy .. ", " .. profile.busy)
end)

t.case("bars of a row do not overlap, but one may contain another", function()
  local last, inside = {}, 0
  table.sort(by.X, function(a, b)
    if a.ts ~= b.ts then return a.ts < b.ts end
    return a.dur > b.dur
  end)
  for _, e in ipairs(by.X) do
    local before = last[e.tid]
    while before and before.to <= e.ts + 1e-4 do before = before.around end
    local to = e.ts + e.dur
    if before then
      inside = inside + 1
      t.check(to <= before.to + 1e-3, ("%s and %s overlap"):format(before.name, e.name))
      t.same(e.tid, 0)
    end
    last[e.tid] = {to = to, name = e.name, around = before}
  end
end)

t.case("busy and idle time add up to the elapsed time on all workers", function()
  local bars = 0
  for _, e in ipairs(tasks) do bars = bars + e.dur * 1e-6 end
  local all = profile.seconds * #profile.workers
  t.check(math.abs(bars + idle_of(profile) - all) < 1e-3 * all,
          ("%g + %g is not %g"):format(bars, idle_of(profile), all))
  for _, kind in ipairs {"kernels", "ops", "layers"} do
    local sum = 0
    for _, group in ipairs(profile[kind]) do sum = sum + group.seconds end
    t.check(math.abs(sum - profile.busy) < 1e-3 * all, kind)
  end
  for _, w in ipairs(profile.workers) do
    local sum = w.busy + w.data + w.dependencies + w.nothing + w.engine
    t.check(math.abs(sum - profile.seconds) < 1e-3 * profile.seconds, w.name)
  end
end)

t.case("arrows point forward in time, from the end of a bar to the start of one", function()
  local begins, ends, sources = {}, {}, {}
  local function key(tid, time) return ("%d %.3f"):format(tid, time) end
  for _, e in ipairs(tasks) do
    begins[key(e.tid, e.ts)], ends[key(e.tid, e.ts + e.dur)] = true, true
  end
  for _, s in ipairs(by.s) do
    t.check(not sources[s.id], "an id twice")
    sources[s.id] = s
    t.check(ends[key(s.tid, s.ts)], "an arrow that starts at no task's end")
  end
  for _, f in ipairs(by.f) do
    local s = sources[f.id]
    t.check(s and s.ts <= f.ts, "an arrow without a start, or back in time")
    t.same(f.bp, "e")
    t.check(begins[key(f.tid, f.ts)], "an arrow that ends at no task's begin")
  end
  t.same(#by.s, #by.f)
  t.check(#by.s > #tasks, #by.s .. " arrows")
end)

t.case("tasks of both passes have op, layer, tile, shape and rates", function()
  local layers = layers_by_op(tasks)
  for _, name in ipairs {"linear", "linear_backward", "adamw_"} do
    for _, path in ipairs {"blocks.1.attn.qkv", "blocks.1.mlp.up", "blocks.2.mlp.down"} do
      t.check(layers[name][path], name .. " of " .. path)
    end
  end
  t.same(layers.attention, {["blocks.1.attn"] = true, ["blocks.2.attn"] = true})
  t.same(layers.attention_backward, layers.attention)
  t.same(layers.linear_cross_entropy, {GPT2 = true})
  t.same(layers.embedding_backward, {tok = true})
  for _, e in ipairs(tasks) do
    local a = e.args
    t.same(e.name, a.layer == "" and a.op or a.op .. " " .. a.layer)
    t.check(a.layer ~= "" or a.op == "copy" or a.op == "grad_norm", a.op .. " without a layer")
    if a.op == "linear" then
      t.check(a.tile >= 1 and #a.shape >= 2 and a.dtype == "f32" and a["GFLOP/s"] > 0, "arguments")
      t.check(a.run >= 1 and a.run <= 3 and a.task >= 1, "the run of the program")
    end
  end
end)

t.case("submissions are bars of the main thread that count their tasks", function()
  local submitted, waits = 0, 0
  for _, e in ipairs(by.X) do
    if e.cat == "submit" then submitted = submitted + (e.args.tasks or 0) end
    if e.cat == "wait" then waits = waits + 1 end
    t.check((e.tid == 0) == (e.cat ~= "task"), e.cat .. " in row " .. e.tid)
  end
  t.same(submitted, profile.recorded)
  t.check(waits > 0, "a wait for the end")
end)

t.case("a profile prints as a table whose shares add up to all of the time", function()
  local text, sum = tostring(profile), 0
  for share in text:gmatch "([%d.]+)%%" do sum = sum + tonumber(share) end
  for _, w in ipairs(profile.workers) do sum = sum - 100 * w.busy / profile.seconds end
  t.check(math.abs(sum - 100) < 3, text)
  for _, line in ipairs {"\nlinear_backward +%d+ ", "\nwaiting for tasks before ", "\nthe engine ",
                         "\nnothing submitted ", "main thread: submitting "} do
    t.check(text:find(line), line .. " in\n" .. text)
  end
end)

t.case("eager ops and their gradients are named, but only while a profile runs", function()
  nn.trace(file, function()
    local loss = model(ids, ids)
    loss:backward()
    model:zero_grad()
    nn.Sequential {nn.Linear(32, 4)}(nn.ones(2, 32))
  end)
  local layers = layers_by_op(tasks_of((read_trace())))
  t.check(layers.linear_backward["blocks.2.mlp.up"], "the gradient of a layer")
  t.check(layers.linear.Sequential or layers.linear["1"], "another root")
  t.check(layers.full and layers.full[""], "ops outside of modules")
  t.same({layer.named, layer.now}, {false})
end)

t.case("modules that are created in forward are named after their class", function()
  local Outer, Inner = nn.module "Outer", nn.module 'In"ner'
  function Inner:forward(x) return x * self.factor end
  function Outer:forward(x)
    local inner = Inner()
    inner.factor = 3
    return inner(x) + 1
  end
  nn.trace(file, function() t.same(Outer()(nn.ones(1)), {4}) end)
  local layers = layers_by_op(tasks_of((read_trace())))
  t.same(layers.mul, {['Outer.In"ner'] = true})
  t.same(layers.add, {Outer = true})
end)

t.case("generation is named by layer", function()
  nn.trace(file, function() nn.generate(model, {1, 2}, {tokens = 3, seed = 1}) end)
  local layers = layers_by_op(tasks_of((read_trace())))
  t.check(layers.attention_cached_["blocks.2.attn"], "cached attention")
end)

t.case("time without submitted tasks is reported as such", function()
  local start = nn.now()
  local p = nn.profile(function() while nn.now() - start < 0.05 do end end)
  t.same({p.recorded, #p.ops, p.busy}, {0, 0, 0})
  t.check(p.idle.nothing > 0.0499 * #p.workers, tostring(p))
  t.check(math.abs(p.idle.nothing - p.seconds * #p.workers) < 1e-6, tostring(p))
end)

t.case("an error ends the profile, and the next one works", function()
  t.fails(function() nn.profile(function() error "mine" end) end, "mine")
  t.fails(function() nn.profile(function() nn.profile(print) end) end, "profiles cannot be nested")
  local bad = nn.tensor({70}, {dtype = "i32"})
  t.fails(function() nn.profile(function() model(bad:reshape(1, 1)) end) end, "vocabulary")
  t.same(nn.profile(function() return nn.ones(3) end).recorded, 1)
  t.same({layer.named, layer.now}, {false})
end)

t.case("invalid arguments are refused before anything runs", function()
  local function never() error "it ran" end
  t.fails(function() nn.trace(never) end, "trace: the file is a function")
  t.fails(function() nn.trace(nn.ones(2, 2)) end, "x:trace() sums a diagonal")
  t.fails(function() nn.trace("", never) end, "trace: the file is ''; a name is needed")
  t.fails(function() nn.trace(file) end, "trace: the argument is nil; a function is needed")
  t.fails(function() nn.trace("/nowhere/x.json", never) end,
          "cannot write the trace: /nowhere/x.json: No such file or directory")
  t.fails(function() nn.trace("/dev/full", never) end, "cannot write '/dev/full': it is a device")
  local status, output = t.shell(("ulimit -f 4; $NNLUA -e '%s'"):format(
    [[nn.trace("]] .. t.folder() .. [[/x.json", function() for _ = 1, 500 do nn.ones(3) end end)]]))
  t.check(status == 1 and output:find "cannot write the trace /.*; is the disk full", output)
end)

-- Runs with these settings; returns what it prints, and its folder.
local function run_with(...)
  local out, name = t.folder(), files.join(folder, "printed")
  local cfg = nn.config({nn.run_fields {steps = 8, out = out, eval_every = 0}}, {...})
  local before = io.output()
  io.output(name)
  local good, problem = pcall(function()
    local run = nn.run(cfg)
    run:track {model = model}
    for _ in run:steps() do run:record((step(ids, ids))) end
    run:done {}
  end)
  io.output():close()
  io.output(before)
  if not good then error(problem, 0) end
  return files.read(name), out
end

local function traced_runs()
  local runs = {}
  for _, e in ipairs(tasks_of((read_trace()))) do runs[e.args.run or 0] = true end
  return #runs
end

t.case("--profile of a run traces its fourth to sixth step and prints the table", function()
  local text, out = run_with "--profile"
  file = files.join(out, "trace.json")
  t.check(text:find("\nsteps 4 to 6 are in " .. file .. "; ", 1, true), text)
  t.check(text:find "\nlinear_backward +%d+ ", text)
  t.same(traced_runs(), 3)
end)

t.case("profile_steps selects other steps, profile=FILE another file", function()
  file = files.join(folder, "mine.json")
  local text = run_with("profile=" .. file, "profile_steps=7-8")
  t.check(text:find("\nsteps 7 to 8 are in " .. file, 1, true), text)
  t.same(traced_runs(), 2)
  t.check(run_with("profile=" .. file, "profile_steps=1"):find "steps 1 to 1 are in ", "one step")
  t.check(run_with("--profile", "steps=2"):find "steps 2 to 2 are in ", "a run of two steps")
  t.check(not run_with("profile=false"):find "are in ", "none")
  for steps, message in pairs {["7-9"] = "is 7-9, but this run has the steps 1 to 8",
                               ["0-1"] = "this run has the steps 1 to 8",
                               ["5-4"] = "a step or a range such as 10-12, not '5-4'",
                               x = "must be a step or a range such as 10-12"} do
    t.fails(function() run_with("--profile", "profile_steps=" .. steps) end, message)
  end
end)

t.finish()
