-- The run loop, evaluation, accumulation and generation, within one process.
local ffi = require "ffi"
local files = require "nn.io.files"
local log = require "nn.train.log"
local nn = require "nn"
local t = require "nn.test"
local units = require "nn.base.units"
local GPT2 = require "models.gpt2"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local quietly = require "printed"

local folder = t.folder()
local tokens = files.join(folder, "tokens.bin")
local ids = ffi.new "uint16_t[2000]"
for i = 0, 1999 do ids[i] = (i * i) % 23 end
files.write(tokens, ffi.string(ids, 4000))

local function settings(...)
  local schema = {nn.run_fields {steps = 6, out = t.folder(), eval_every = 2, log_every = 1},
                  data = nn.data_fields {bin = tokens, batch = 2}}
  return nn.config(schema, {...})
end
local function parts_of(cfg, dropout)
  local data = nn.data(cfg.data, {context = 8, vocab = 23, seed = cfg.seed})
  local model = GPT2 {layers = 1, heads = 2, embd = 16, context = 8, vocab = 23, dropout = dropout}
  return {model = model, optim = nn.AdamW(model, {lr = 1e-2}), data = data.train}, data
end
local function events(cfg)
  local list = {}
  for line in files.read(files.join(cfg.out, "metrics.jsonl")):gmatch "[^\n]+" do
    list[#list + 1] = files.parse_json(line)
  end
  return list
end
t.case("a run logs its events in order and counts only training as training", function()
  local cfg, elapsed = settings("save_every=4", "keep_best=false"), nil
  quietly(function()
    local run = nn.run(cfg)
    local parts, data = parts_of(cfg)
    local step = nn.compile(function(x, y)
      return nn.accumulate(parts.model, 1, x, y), parts.optim:step()
    end)
    run:track(parts)
    local seen, start = {}, nn.now()
    for number in run:steps() do
      seen[#seen + 1] = number
      run:record(step(parts.data:batch()))
      run:every(cfg.eval_every, function()
        os.execute "sleep 0.2"
        run:report {val_loss = nn.evaluate(parts.model, data.val, 2)}
      end)
    end
    t.same(seen, {1, 2, 3, 4, 5, 6})
    elapsed = nn.now() - start
    run:done {val_loss = 1.5}
  end)
  local names, saved, last = {}, {}, nil
  for _, event in ipairs(events(cfg)) do
    local list = event.event == "checkpoint" and saved or names       -- written in the background
    list[#list + 1], last = event.event .. event.step, event
  end
  t.same(table.concat(names, " "), "start0 first_step1 step1 step2 eval2 step3 step4 eval4 step5 "
         .. "step6 eval6 done6")
  t.same(saved, {"checkpoint4", "checkpoint6"})
  t.same(last.val_loss, 1.5)
  t.check(last.train_seconds < elapsed - 0.6, "three evaluations slept for 0.6 s")
  t.check(files.read(files.join(cfg.out, "config.json")):find('"batch": 2', 1, true), "config.json")
end)

t.case("the loss of a step is read when the second after it has been submitted", function()
  local cfg, order = settings("steps=4", "eval_every=0"), {}
  local function result(step)
    order[#order + 1] = "submit " .. step
    return {item = function() order[#order + 1] = "read " .. step return step end,
            release = function() end}
  end
  quietly(function()
    local run = nn.run(cfg)
    run:track {model = GPT2 {layers = 1, heads = 1, embd = 4, context = 4, vocab = 4}}
    for step in run:steps() do run:record(result(step)) end
  end)
  t.same(table.concat(order, ", "), "submit 1, submit 2, submit 3, read 1, submit 4, read 2, "
         .. "read 3, read 4")
end)

-- Runs steps with these losses and gradient norms.
local function run_with(cfg, losses, norms)
  return quietly(function()
    local run = nn.run(cfg)
    run:track {model = GPT2 {layers = 1, heads = 1, embd = 4, context = 4, vocab = 4}}
    for step in run:steps() do
      run:record(nn.tensor(losses[step] or 1), norms and nn.tensor(norms[step] or 1))
    end
  end)
end

t.case("NaN or Inf in the loss or gradient stops the run, with the step and what to do", function()
  local cfg = settings("steps=5", "save_every=2")
  local said = t.fails(function() run_with(cfg, {1, 1, 1, 0 / 0}) end, "")
  t.same(said, "the loss is nan at step 4; lower optim.lr or lengthen schedule.warmup, or skip "
         .. "such steps with on_nan=skip. The last checkpoint is "
         .. files.join(cfg.out, "checkpoint-000002"))
  t.same(files.exists(cfg.out .. "/checkpoint-000004"), false)
  said = t.fails(function() run_with(settings("steps=5"), {1}, {1, math.huge}) end, "")
  t.check(said:find("the gradient norm is inf at step 2; ", 1, true), said)
  t.check(said:find("No checkpoint was saved yet", 1, true), said)
end)

t.case("with on_nan=skip the run continues, but not for ever", function()
  local cfg = settings("steps=5", "on_nan=skip")
  local printed = run_with(cfg, {1, 0 / 0, 1})
  t.check(printed:find("step 2: the loss is nan; this step changes nothing\n", 1, true), printed)
  t.same(files.exists(cfg.out .. "/checkpoint-000005"), true)
  local all = {}
  for i = 1, 30 do all[i] = 0 / 0 end
  t.fails(function() run_with(settings("steps=30", "on_nan=skip"), all) end,
          "the loss is nan at step 21; lower optim.lr or lengthen schedule.warmup (20 steps in a")
end)

t.case("a step with a NaN gradient does not change the weights", function()
  local w = nn.tensor({1, 2}, {grad = true})
  local optim = nn.AdamW({{path = "w", tensor = w}}, {lr = 0.1, skip_nonfinite = true})
  local step = nn.compile(function(x)
    (w * x):sum():backward()
    return optim:step()
  end)
  t.check(step(nn.tensor {0 / 0, 1}):item() ~= 1, "NaN")
  t.same(w, {1, 2})
  step(nn.tensor {1, 1})
  t.check(w:table()[1] < 1 and w:table()[2] < 2, "the next step changes them")
end)

-- Trains for 6 steps with a checkpoint after each; step 4 has the lowest validation loss.
local function run_to_best(cfg, losses, last)
  losses = losses or {5, 4, 3, 1, 2, 3}
  quietly(function()
    local run = nn.run(cfg)
    local parts = parts_of(cfg)
    run:track(parts)
    for step in run:steps() do
      local x, y = parts.data:batch()
      local loss = parts.model(x, y)
      loss:backward()
      run:record(loss, parts.optim:step())
      run:every(1, function() run:report {val_loss = losses[step]} end)
      if step == last then break end
    end
    if last then run:done {} end
  end)
end

t.case("the checkpoint with the lowest validation loss is kept, and the newest", function()
  local cfg = settings("save_every=0", "keep=1")
  run_to_best(cfg)
  local state = nn.open_checkpoint(cfg.out .. "/best").state
  t.same({state.step, state.best}, {4, {step = 4, val_loss = 1}})
  local folders = {}
  for _, name in ipairs(files.list(cfg.out)) do
    if name:find "^checkpoint" then folders[#folders + 1] = name end
  end
  t.same(folders, {"checkpoint-000004", "checkpoint-000006"})
  t.same(nn.open_checkpoint(cfg.out .. "/checkpoint-000006").state.best.step, 4)
  local more = settings("steps=7", "save_every=0", "keep=1", "resume=auto", "out=" .. cfg.out)
  run_to_best(more)
  t.same(nn.open_checkpoint(cfg.out .. "/best").state.step, 4)
  t.same(files.exists(cfg.out .. "/checkpoint-000006"), false)
  cfg = settings("save_every=0", "keep=1", "keep_best=false")
  run_to_best(cfg)
  t.same(files.exists(cfg.out .. "/checkpoint-000004"), false)
end)

t.case("a validation loss that is NaN is never the best", function()
  local cfg = settings("save_every=0", "keep=1")
  run_to_best(cfg, {5, 4, 0 / 0, 6, 0 / 0, 7})
  t.same(nn.open_checkpoint(cfg.out .. "/best").state.best, {step = 2, val_loss = 4})
end)

t.case("a loop left early keeps the checkpoint being written; done saves its last step", function()
  local cfg = settings("steps=9", "save_every=2", "keep_best=false")
  run_to_best(cfg, {5, 4, 3, 2, 1, 1}, 5)
  t.same(nn.open_checkpoint(cfg.out .. "/checkpoint-000004").state.step, 4)
  t.same(nn.open_checkpoint(cfg.out .. "/checkpoint-000005").state.step, 5)
  local list = events(cfg)
  t.same(list[#list].event, "done")
end)

t.case("a validation loss of stop_at ends the run, which is saved", function()
  local cfg = settings("steps=9", "save_every=0", "keep_best=false", "stop_at=2.5")
  run_to_best(cfg, {5, 4, 2.5, 2, 1, 1})
  t.same(nn.open_checkpoint(cfg.out .. "/checkpoint-000003").state.step, 3)
  t.same(files.exists(cfg.out .. "/checkpoint-000004"), false)
end)

t.case("a resumed run keeps its settings, except those that are given", function()
  local out = t.folder()
  local function read(...)
    return nn.config({preset = "a", nn.run_fields {}, lr = nn.field(1, "rate", {real = true}),
                      text = nn.field("", "file")}, {...},
                     {presets = {a = {lr = 2}, b = {lr = 3}}})
  end
  local cfg = read("out=" .. out, "steps=1", "lr=0.5", "text=x", "save_every=7")
  nn.save_checkpoint(out, {step = 1, model = nn.Linear(1, 1), config = cfg})
  local function of(...)
    local c = read("out=" .. out, ...)
    return {c.steps, c.lr, c.text, c.save_every, c.resume}
  end
  t.same(of(), {2000, 2, "", 500, "none"})
  t.same(of "resume=auto", {1, 0.5, "x", 7, "auto"})
  t.same(of("lr=4", "resume=auto", "steps=2"), {2, 4, "x", 7, "auto"})
  t.same(of("resume=auto", "preset=a"), of("resume=auto"))
  t.same(of("resume=auto", "preset=b"), {2000, 3, "", 500, "auto"})
  local other = read("resume=" .. out, "out=elsewhere")
  t.same({other.lr, other.out}, {0.5, "elsewhere"})
  t.same(read("resume=auto", "out=nowhere").lr, 2)
end)

t.case("the folder of a run is not overwritten", function()
  local cfg = settings("steps=1")
  run_with(cfg, {1})
  t.fails(function() nn.run(settings("steps=1", "out=" .. cfg.out)) end,
          "already contains a run, up to step 1; resume it with resume=auto, or choose")
  local before = #events(cfg)
  run_with(settings("steps=2", "resume=auto", "out=" .. cfg.out), {1, 1})
  t.check(#events(cfg) > before, "metrics are added to")
end)

t.case("mistakes in a user's own loop are reported before any computation", function()
  local function tracked()
    local run = nn.run(settings("steps=1"))
    run:track(parts_of(run.cfg))
    return run
  end
  t.fails(function() nn.run {steps = 3} end, "run: the settings have no '")
  t.fails(function() nn.run(settings()):steps() end, "steps: call run:track {model = model, ...}")
  t.fails(function() nn.run(settings()):track {} end, "track: model is nil; a model of nn.module")
  t.fails(function() nn.run(settings()):track {modle = 1} end, "did you mean 'model'?")
  t.fails(function() tracked():record(3) end, "record: the loss is a number, not a tensor")
  t.fails(function() tracked():record(nn.ones(3)) end, "record: the loss has 3 elements; its mean")
  t.fails(function() tracked():every(2) end, "every: the argument is nil; a function is needed")
  t.fails(function() tracked():report() end, "report: the argument is nil; numbers by name")
  t.fails(function() tracked():report {val_loss = "low"} end, "report: val_loss is 'low'; a number")
  t.fails(function() nn.accumulate(nn.Linear(1, 1), 2) end, "accumulate: a batch is nil; tensors")
  local run = tracked()
  quietly(function() run:report {val_loss = nn.tensor(2)} end)
  t.same(events(run.cfg)[1].val_loss, 2)
end)

t.case("a run without a folder uses runs/PRESET, then runs/PRESET-2", function()
  local _, output = t.shell(([[cd %s
    for resume in none none auto; do $NNLUA -e '
      local cfg = nn.config({preset = "x", nn.run_fields {}}, {"resume='$resume'"})
      local run = nn.run(cfg)
      run.log:event("start", {})
      print(run.out, cfg.out)'
    done]]):format(t.folder()))
  t.same(output, "runs/x\truns/x\nruns/x-2\truns/x-2\n"
         .. "there is no checkpoint in runs/x-2 yet: starting at step 1\nruns/x-2\truns/x-2\n")
end)

t.case("two processes never run in one folder, and a lock ends with its process", function()
  local script = [[$NNLUA -e '
    local cfg = nn.config({preset = "x", nn.run_fields {}}, {"resume=%s", "out=%s"})
    local run = nn.run(cfg)
    run.log:event("start", {})
    print(run.out)
    io.stdout:flush()
    os.execute "sleep %g >/dev/null 2>&1"' ]]
  local inside = "cd " .. t.folder() .. "\n"
  local function shell(text) return select(2, t.shell(inside .. text)) end
  -- 1. The other process is named; killed, it leaves a folder that can be used.
  local output = shell(script:format("none", "here", 30)
    .. "& for i in $(seq 100); do [ -e here/run.lock ] && break; sleep 0.1; done\n"
    .. script:format("auto", "here", 0) .. "2>&1; echo $!; pkill -9 -P $! ; kill -9 $!\n"
    .. script:format("auto", "here", 0) .. "2>&1")
  local process, expected = output:match "process (%d+) is using 'here'; wait.-\n(%d+)\n"
  t.same(process, expected, output)
  t.check(output:find "starting at step 1\nhere\n", output)
  -- 2. Starts at the same moment choose different folders.
  output = shell((script:format("none", "", 1) .. "& "):rep(4) .. "wait")
  local names = {}
  for name in output:gmatch "runs/%S+" do names[#names + 1] = name end
  table.sort(names)
  t.same(names, {"runs/x", "runs/x-2", "runs/x-3", "runs/x-4"}, output)
  t.same(shell "ls -d here/run.lock runs/*/run.lock 2>&1 | grep -c 'No such file'", "2\n")
end)

t.case("settings that changed since the checkpoint are named; the model's are refused", function()
  local out = t.folder()
  local function start(...)
    local cfg = nn.config({nn.run_fields {out = out, steps = 1}, model = {embd = 4}}, {...})
    return quietly(function()
      local run = nn.run(cfg)
      run:track {model = GPT2 {layers = 1, heads = 1, embd = 4, context = 4, vocab = 4}}
      for _ in run:steps() do run:record(nn.tensor(1)) end
    end)
  end
  start()
  local printed = start("resume=auto", "steps=2")
  t.check(printed:find("resuming with steps=2 (it was 1)\n", 1, true), printed)
  t.fails(function() start("resume=auto", "model.embd=8", "steps=3") end,
          "checkpoint-000002' belongs to another model: model.embd=8 (it was 4)")
  t.fails(function() start("resume=nowhere") end, "there is no checkpoint in 'nowhere'")
end)

t.case("accumulation gives the loss and the gradient of the whole batch", function()
  local parts = parts_of(settings())
  local x, y = parts.data:batch()
  local wide, tall = nn.cat({x, x, y}, 1), nn.cat({y, y, x}, 1)      -- 6 rows
  local results = {}
  for _, pieces in ipairs {1, 2, 3, 6} do
    local run = nn.compile(function(a, b)
      parts.model:zero_grad()
      local loss = nn.accumulate(parts.model, pieces, a, b)
      return loss, parts.model.tok.weight.grad, parts.model.blocks[1].attn.qkv.weight.grad
    end)
    local loss, token_grad, qkv_grad = run(wide, tall)
    results[#results + 1] = {loss:item(), token_grad:table(), qkv_grad:table()}
  end
  for i = 2, 4 do t.near(results[i], results[1], {rel = 1e-4, abs = 1e-6}) end
  t.fails(function() nn.accumulate(parts.model, 4, wide, tall) end, "6 rows do not divide")
end)

t.case("evaluation is the mean loss, without dropout, and keeps the random state", function()
  local parts, data = parts_of(settings(), 0.5)
  local state = nn.random_state()
  local loss = nn.evaluate(parts.model, data.val, 0)
  t.same(nn.evaluate(parts.model, data.val, 0), loss)
  t.same({nn.random_state(), nn.training()}, {state, true})
  nn.training(false)
  local sum, rows = 0, 0
  for x, y, count in data.val:windows() do
    sum, rows = sum + parts.model(x, y):item() * count, rows + count
  end
  nn.training(true)
  t.near(loss, sum / rows, {rel = 1e-6})
  t.same(rows, math.floor(199 / 8))
end)

t.case("generation depends on the seed alone and sees the last tokens of the context", function()
  local model = parts_of(settings(), 0.5).model
  local state = nn.random_state()
  local function draw(prompt, options) return nn.generate(model, prompt, options) end
  local a = draw({3, 4}, {tokens = 20, seed = 1})
  t.same({#a, a[1], a[2]}, {22, 3, 4})
  t.same(draw({3, 4}, {tokens = 20, seed = 1}), a)
  t.check(table.concat(draw({3, 4}, {tokens = 20, seed = 2}), " ") ~= table.concat(a, " "), "seeds")
  local likeliest = draw({3, 4}, {tokens = 20, temperature = 0})
  t.same(draw({3, 4}, {tokens = 20, top_k = 1, seed = 7}), likeliest)
  local long, short = draw({9, 1, 2, 3, 4, 5, 6, 7, 8}, {tokens = 4, seed = 3}),
    draw({1, 2, 3, 4, 5, 6, 7, 8}, {tokens = 4, seed = 3})
  t.same({unpack(long, 10)}, {unpack(short, 9)})
  t.same({nn.random_state(), nn.training()}, {state, true})
  t.fails(function() draw({}, {}) end, "give at least one token")
end)

t.case("generation samples in proportion to the probabilities", function()
  local function model() return nn.tensor({{{math.log(1), math.log(2), math.log(5)}}}) end
  local counts, draws = {0, 0, 0}, 2000
  local ids_drawn = nn.generate(setmetatable({config = {context = 1}}, {__call = model}), {0},
                                {tokens = draws})
  for i = 2, #ids_drawn do counts[ids_drawn[i] + 1] = counts[ids_drawn[i] + 1] + 1 end
  t.near(counts, {draws / 8, draws / 4, draws * 5 / 8}, {abs = 100})     -- 5 standard deviations
end)

t.case("a narrow terminal drops whole fields, the least important first", function()
  local fields = {step = 120, steps = 2000, loss = 2.3145, lr = 1e-3, grad_norm = 1.25, ms = 123.4,
                  tokens_per_s = 16400, mfu = 0.42, memory = 1.44e9, eta = 11110}
  t.same(log.line(fields), "step  120/2000  loss 2.3145  lr 1.00e-03  norm 1.25  123.4 ms  "
         .. "16.4k tok/s  mfu 42%  mem 1.4 GB  eta 3:05:10")
  t.same(log.line(fields, 79), "step  120/2000  loss 2.3145  123.4 ms  16.4k tok/s  mem 1.4 GB  "
         .. "eta 3:05:10")
  t.same(log.line(fields, 60), "step  120/2000  loss 2.3145  16.4k tok/s  eta 3:05:10")
  t.same(log.line(fields, 20), "step  120/2000")
  t.same(log.line(fields, 9), "step  120")
end)

t.case("printed numbers are short", function()
  local duration, bytes, number = units.duration, units.bytes, units.number
  t.same({duration(41.2), duration(72), duration(11110), duration(187800)},
         {"41s", "1:12", "3:05:10", "2d 04:10"})
  local rough = units.rough_duration
  t.same({rough(0.25), rough(1), rough(90), rough(150), rough(7000), rough(18720), rough(1e5)},
         {"250 ms", "1 second", "90 seconds", "2.5 minutes", "117 minutes", "5.2 hours",
          "28 hours"})
  t.same({bytes(12e3), bytes(812e6), bytes(1.44e9), bytes(3e12)},
         {"12 kB", "812 MB", "1.4 GB", "3.0 TB"})
  t.same({number(812), number(16400), number(1557611200), number(124439808), number(999950)},
         {"812", "16.4k", "1.56B", "124M", "1.00M"})
end)

t.finish()
