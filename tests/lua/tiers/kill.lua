-- A training whose tensors exceed RAM is killed at random moments and resumes to the same bits;
-- failures of the disk leave its checkpoints intact. Each run is a process of its own. TIERS_KILLS:
-- how many kills; TIERS_FAILURES: how many injected failures.
local checkpoint = require "nn.models.checkpoint"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local folder, disk = t.folder(), t.folder()
local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or math.floor(nn.now() * 1e6 % 2 ^ 31)
math.randomseed(seed)
files.write(folder .. "/text.txt", files.read(host.root .. "/README.md"))
files.write(folder .. "/train", ([[#!/bin/bash
  exec %s %s/recipes/gpt2_train.lua model.layers=4 model.heads=4 model.embd=128 model.context=32 \
    model.dtype=f32 model.dropout=0.1 data.batch=2 data.accum=2 \
    data.text=%s/text.txt data.vocabulary=byte \
    eval_every=5 eval_batches=1 final_batches=1 sample.tokens=1 log_every=1 save_every=3 keep=2 \
    steps=30 memory.disk=%s memory.disk_in_ram=true memory.ram=$RAM "$@"
]]):format(t.program(), host.root, folder, disk))
local function shell(text)
  return t.shell(("cd %s; chmod +x train; export RAM=8MB NNLUA_CHECKS=tiles; "):format(folder)
                 .. text)
end

-- The undisturbed run, with enough memory.
local status, output = shell "RAM=1GB ./train out=whole 2>&1"
t.check(status == 0, output)
local function bytes_of(out)
  return files.read(("%s/%s/checkpoint-000030/model.safetensors"):format(folder, out))
    .. files.read(("%s/%s/checkpoint-000030/optimizer.safetensors"):format(folder, out))
end
local function losses(out)
  local list = {}
  for line in files.read(("%s/%s/metrics.jsonl"):format(folder, out)):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event and event.event == "step" then
      t.check(not list[event.step] or list[event.step] == event.loss, "another loss in " .. line)
      list[event.step] = event.loss
    end
  end
  return list
end
local expected = {bytes = bytes_of "whole", losses = losses "whole"}

-- The steps of the newest checkpoint, which must be intact; 0 if there is none.
local function newest(out)
  local found = checkpoint.find(folder .. "/" .. out, "auto", function(text) error(text, 0) end)
  return found and found.state.step or 0
end

-- The bytes that are free on the disk.
local function free()
  return tonumber(select(2, shell("df -B1 --output=avail " .. disk)):match "(%d+)%s*$")
end

t.case("a run that is killed at random moments resumes to the same bits", function()
  local kills, restarts, before = tonumber(os.getenv "TIERS_KILLS") or 5, 0, free()
  local done = 0
  while done < kills do
    local out = "killed" .. restarts
    local step = 0
    repeat
      status, output = shell(([[
        (exec ./train out=%s resume=auto) >%s.log 2>&1 & process=$!
        until grep -qs 'steps [0-9]* to' %s.log; do kill -0 $process 2>/dev/null || break
          sleep 0.01; done
        sleep %.3f; kill -KILL $process 2>/dev/null; wait $process 2>/dev/null; echo status $?
        tail -3 %s.log]]):format(out, out, out, math.random() * 1.2, out))
      t.same(files.list(disk), {})
      local killed = output:find("status 137", 1, true)
      t.check(killed or output:find("status 0", 1, true), output)
      done = done + (killed and 1 or 0)
      local now = newest(out)
      t.check(now >= step, ("seed %d: step %d after %d"):format(seed, now, step))
      step = now
    until not killed or done >= kills
    status, output = shell(("[ -e %s/checkpoint-000030 ] || ./train out=%s resume=auto 2>&1")
                           :format(out, out))
    t.check(status == 0, output)
    t.check(bytes_of(out) == expected.bytes, ("seed %d: other weights or moments"):format(seed))
    t.same(losses(out), expected.losses)
    restarts = restarts + 1
  end
  print(("  %d kills of %d runs; %.0f MB less are free on the disk than before"):format(
    done, restarts, (before - free()) / 1e6))
end)

t.case("after a failed transfer of a run, its checkpoint resumes to the same bits", function()
  local wanted, last = tonumber(os.getenv "TIERS_FAILURES") or 2, 5000
  for round = 1, wanted do
    local out, kind = "failed" .. round, ({"5", "28", "zero"})[math.random(3)]
    local calls = kind == "zero" and "read" or "any"
    -- Fails one of the first `last` transfers. Returns false if the run ended before it.
    local function fails()
      local what = ("%s:%d:%s"):format(calls, math.random(last), kind)
      status, output = shell(("NNLUA_FAIL_DISK=%s timeout -k 1 100 ./train out=%s resume=auto 2>&1")
                             :format(what, out))
      t.check(status == 0 or status == 1, what .. "\n" .. output)
      t.same(files.list(disk), {})
      if status == 0 then return false end
      t.check(output:find("the disk folder '" .. disk, 1, true), what .. "\n" .. output)
      newest(out)
      return true
    end
    while not fails() do    -- the run has fewer transfers than the number that was drawn
      shell("rm -r " .. out)
      last = math.ceil(last / 2)
    end
    fails()    -- once more while it resumes
    status, output = shell(("./train out=%s resume=auto 2>&1"):format(out))
    t.check(status == 0 or output:find("nothing", 1, true), output)
    t.check(bytes_of(out) == expected.bytes, "other weights or moments")
    for step, loss in pairs(losses(out)) do t.same(loss, expected.losses[step]) end
  end
  print(("  %d runs failed and resumed"):format(wanted))
end)

t.case("evaluation and generation from the disk fail with one error and no wrong value", function()
  for _, recipe in ipairs {"gpt2_eval.lua text=text.txt tokens=200 batch=1",
                           "gpt2_generate.lua tokens=8"} do
    local function run(environment, settings)
      local ended, text = shell(
        ("%s timeout -k 1 100 %s %s/recipes/%s model=whole/checkpoint-000030 %s 2>&1"):format(
          environment, t.program(), host.root, recipe, settings))
      return ended, text:gsub("[^\n]* tokens/s[^\n]*", "")
    end
    local tiers = "memory.ram=2500kB memory.disk_in_ram=true memory.disk=" .. disk
    local _, right = run("", "")
    status, output = run("", tiers)
    t.check(status == 0 and output == right, output)
    for round = 1, 4 do
      local number = round == 1 and 1 or math.random(200)
      status, output = run(("NNLUA_FAIL_DISK=any:%d:5"):format(number), tiers)
      t.check(status == 0 and output == right and round > 1
              or status == 1 and output:find("the disk folder '" .. disk, 1, true), output)
    end
  end
end)

t.finish()
