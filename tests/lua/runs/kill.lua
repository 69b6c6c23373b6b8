-- Training that is killed or gets a signal at any time resumes exactly from its checkpoints. Each
-- run is a process of its own. KILL_ROUNDS: how many kills, and as many other signals.
local checkpoint = require "nn.models.checkpoint"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local folder = t.folder()
files.write(files.join(folder, "text.txt"), files.read(host.root .. "/README.md"))
-- `train TILE ...` is the recipe with small settings and tiles of TILE tokens (0: automatic).
files.write(files.join(folder, "train.lua"), ([[
  require "nn".tiles {tokens = tonumber(table.remove(arg, 1))}
  dofile "%s/recipes/gpt2_train.lua"
]]):format(host.root))
files.write(files.join(folder, "train"), ([[#!/bin/bash
  exec %s %s/train.lua "$@" data.text=%s/text.txt data.vocabulary=byte eval_every=0 \
    final_batches=1 sample.tokens=1 log_every=1
]]):format(t.program(), folder, folder))
local function shell(text)
  return t.shell(("cd %s; chmod +x train; PATH=$PWD:$PATH; "):format(folder) .. text)
end

-- {[step] = loss} from metrics.jsonl, for all steps after `first`.
local function losses(out, first)
  local list = {}
  for line in files.read(files.join(folder, out .. "/metrics.jsonl")):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event and event.event == "step" and event.step > first then list[event.step] = event.loss end
  end
  return list
end

t.case("200 steps equal 100 steps, a kill and 100 steps: the same losses to the bit", function()
  local same = "0 model.layers=2 model.heads=2 model.embd=32 model.context=32 data.batch=8 "
    .. "model.dtype=f32 model.dropout=0.1 steps=200 save_every=100 keep=9"
  local status, output = shell(([[
    train %s out=whole >whole.log || exit 1
    train %s out=part >part.log 2>&1 &
    while [ ! -e part/checkpoint-000100 ]; do sleep 0.01; done
    kill -9 $!; wait $! 2>/dev/null; [ $? = 137 ] || exit 2
    cp -r part/checkpoint-000100 .
    train %s out=part resume=auto]]):format(same, same, same))
  t.same(status, 0)
  t.check(output:find("resumed after step 100 from part/checkpoint-000100", 1, true), output)
  local expected = losses("whole", 0)
  t.same(#expected, 200)
  t.same(losses("part", 0), expected)
  t.check(files.read(folder .. "/part/checkpoint-000200/model.safetensors")
          == files.read(folder .. "/whole/checkpoint-000200/model.safetensors"), "the weights")
end)

t.case("resumed with other tiles and another number of workers, losses agree to 1e-6", function()
  local same = "model.layers=2 model.heads=2 model.embd=32 model.context=32 data.batch=8 "
    .. "model.dtype=f32 model.dropout=0.1 steps=200 save_every=0 resume=checkpoint-000100"
  local expected, worst = losses("whole", 100), 0
  for name, how in pairs {one = "NNLUA_CPUS=1 train 0", three = "NNLUA_CPUS=3 train 37"} do
    local status, output = shell(("%s %s out=%s"):format(how, same, name))
    t.check(status == 0, output)
    for step, loss in pairs(losses(name, 100)) do
      worst = math.max(worst, math.abs(loss / expected[step] - 1))
    end
    t.same(losses(name, 100)[200] ~= nil, true)
  end
  t.check(worst <= 1e-6, ("they differ by %.2g"):format(worst))
  print(("  the largest relative difference is %.2g"):format(worst))
end)

-- A run with everything on: checkpoints, validations, samples, reports, profiles, microbatches.
local everything = "model.layers=4 model.heads=4 model.embd=128 model.context=16 model.dropout=0.1 "
  .. "data.batch=2 data.accum=2 steps=100000 save_every=2 eval_every=3 eval_batches=1 "
  .. "sample_every=5 --profile"
local numbers = {TERM = 15, INT = 2, HUP = 1, XCPU = 24}

-- Starts or resumes the run and sends it a signal: `seconds` after so many lines of metrics.jsonl
-- are new, or after its start if `lines` is nil. `repeats` sends it twice, as timeout does. Returns
-- the output, the exit status, and the seconds from the signal to the end.
local function start_and_signal(name, lines, seconds, repeats)
  local _, output = shell(([[
    : >killed.log                              # without the lines of the round before
    (exec env --default-signal train 0 %s resume=auto out=killed) >killed.log 2>&1 & process=$!
    (timeout 120 tail --pid=$process -f /dev/null || kill -KILL $process) >/dev/null 2>&1 &
    lines() { cat killed/metrics.jsonl 2>/dev/null | wc -l; }
    end=$(($(lines) + %d))
    until [ $(lines) -ge $end ]; do kill -0 $process || break; sleep 0.01; done
    sleep %.3f; begin=$(date +%%s%%N); kill -%s $process; %s
    [ %s = USR1 ] && { sleep 0.2; kill -KILL $process; }
    wait $process 2>/dev/null; echo "status $? $(($(date +%%s%%N) - begin))"
    cat killed.log]]):format(everything, lines or 0, seconds, name,
                               repeats and "kill -" .. name .. " $process 2>/dev/null" or "",
                               name))
  local status, nanoseconds = output:match "status (%d+) (%d+)\n"
  return output, tonumber(status), tonumber(nanoseconds) * 1e-9
end

-- Every step that was computed several times, since a kill discarded it, has the same loss.
local function check_losses(random)
  local list, again = {}, 0
  for line in files.read(files.join(folder, "killed/metrics.jsonl")):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event and event.event == "step" then
      local before = list[event.step]
      again = again + (before and 1 or 0)
      t.check(not before or before == event.loss,
              ("step %d of seed %d: %s, then %s"):format(event.step, random, before, event.loss))
      list[event.step] = event.loss
    end
  end
  return again
end

t.case("no kill and no signal at a random moment loses a checkpoint", function()
  local rounds = tonumber(os.getenv "KILL_ROUNDS") or 20
  local random = tonumber(os.getenv "NNLUA_TEST_SEED") or math.floor(nn.now() * 1e6 % 2 ^ 31)
  local out = files.join(folder, "killed")
  local unfinished, newest, lost, worst, saves = 0, 0, {}, 0, 0
  math.randomseed(random)
  local asking = {"TERM", "INT", "HUP", "XCPU", "TERM", "USR1"}
  for round = 1, 2 * rounds do
    local name = round % 2 == 1 and "KILL" or asking[math.random(#asking)]
    local from_start = math.random() < 0.2
    local lines = not from_start and math.random(12)
    local wait = math.random() * (from_start and 0.3 or 0.03)
    local output, status, seconds = start_and_signal(name, lines, wait, math.random() < 0.5)
    local killed = name == "KILL" or name == "USR1"
    local early = from_start and name == "USR1" and status == 128 + 10  -- before its handler is set
    t.check(early or status == 128 + (killed and 9 or numbers[name]), output)
    if not killed then worst = math.max(worst, seconds) end
    for _, entry in ipairs(files.list(out) or {}) do
      unfinished = unfinished + (entry:find "tmp$" and 1 or 0)
    end
    local good, found = pcall(checkpoint.find, out, "auto", function(text) error(text, 0) end)
    local step = good and found and found.state.step or 0
    local said = tonumber(output:match "stopped after step (%d+), which is saved"
                          or output:match "saved step (%d+) in [^\n]+ after a signal")
    saves = saves + (said and 1 or 0)
    if not good or step < math.max(newest, said or 0) then
      lost[#lost + 1] = ("round %d of seed %d, %s: %d after %d and %s: %s"):format(
        round, random, name, step, newest, tostring(said), good and output or tostring(found))
    end
    newest = step
  end
  local again = check_losses(random)
  print(("  %d kills and %d signals: %d lost, %d saved by a signal, worst time to end %.2f s; %d "
         .. "steps, %d computed again, %d kills while a checkpoint was written"):format(
           rounds, rounds, #lost, saves, worst, newest, again, unfinished))
  t.check(#lost == 0, table.concat(lost, "\n"))
  t.check(newest > rounds and again > 0 and saves > 0, "the signals came too early")
  t.check(worst < 60, ("a signal took %.0f s to end the run"):format(worst))
end)

t.finish()
