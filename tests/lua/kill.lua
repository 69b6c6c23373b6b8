-- Training that is killed (SIGKILL) at any time resumes exactly from its checkpoints. Each run is a
-- process of its own.
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
    .. "model.dropout=0.1 steps=200 save_every=100 keep=9"
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
    .. "model.dropout=0.1 steps=200 save_every=0 resume=checkpoint-000100"
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

t.case("after any of 50 kills the newest complete checkpoint loads", function()
  local random, unfinished, newest = nn.now() * 1e6 % 2 ^ 31, 0, 0
  math.randomseed(random)
  local out = files.join(folder, "killed")
  for kill = 1, 50 do
    local _, output = shell(([[
      train 0 model.layers=4 model.heads=4 model.embd=128 model.context=16 data.batch=2 \
        save_every=1 steps=100000 resume=auto out=killed >killed.log 2>&1 &
      while ! grep -q 'steps [0-9]* to' killed.log; do kill -0 $! || break; sleep 0.01; done
      sleep %.3f; kill -9 $!; wait $! 2>/dev/null; [ $? = 137 ] || cat killed.log]]):format(
        math.random() * 0.3))
    t.check(output == "", output)
    for _, name in ipairs(files.list(out)) do
      if name:find "tmp$" then unfinished = unfinished + 1 end
    end
    local found = checkpoint.find(out, "auto", function(text)
      error(("kill %d of seed %d: %s"):format(kill, random, text))
    end)
    local step = found and found.state.step or 0
    t.check(step >= newest, ("after step %d only %d can be read"):format(newest, step))
    newest = step
  end
  t.check(newest > 10, "steps were saved")
  t.check(unfinished > 5, "some kills came while a checkpoint was written")
  print(("  %d steps, %d of 50 kills while a checkpoint was written"):format(newest, unfinished))
end)

t.finish()
