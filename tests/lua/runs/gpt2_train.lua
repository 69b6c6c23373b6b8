-- recipes/gpt2_train.lua from a shell: with signals, resumed, on a terminal.
local files = require "nn.io.files"
local t = require "nn.test"
local host = require "nn.host"

local folder = t.folder()
local small = "model.layers=1 model.embd=32 model.heads=2 model.context=16 data.batch=4 "
  .. "eval_every=0 final_batches=2 sample.tokens=10 schedule.warmup=2"
local fox, script = "the quick brown fox jumps over the lazy dog.\n", "%s/recipes/gpt2_train.lua %s"
files.write(files.join(folder, "text.txt"), fox:rep(50))
files.write(files.join(folder, "train"), ('#!/bin/bash\nexec %s ' .. script .. ' "$@"\n'):format(
  t.program(), host.root, small))

-- Runs a script in the test's folder, where `train` is the recipe with small settings and `await
-- FILE TEXT` waits until a log contains a text.
local function shell(text)
  return t.shell(([[
    cd %s; chmod +x train; PATH=$PWD:$PATH; set -m
    await() { for i in $(seq 900); do grep -q "$2" $1 2>/dev/null && break; sleep 0.1; done; }
  ]]):format(folder) .. text)
end
local function events(out)
  local list = {}
  for line in files.read(files.join(folder, out .. "/metrics.jsonl")):gmatch "[^\n]+" do
    list[#list + 1] = files.parse_json(line)
  end
  return list
end
local function weights(out, step)
  return files.read(("%s/%s/checkpoint-%06d/model.safetensors"):format(folder, out, step))
end
local function moments(out, step)
  return files.read(("%s/%s/checkpoint-%06d/optimizer.safetensors"):format(folder, out, step))
end

t.case("without settings it trains on nnlua's own sources and explains data.text", function()
  local status, output = shell "train steps=3"
  t.same(status, 0)
  t.check(output:find("training on nnlua's own sources; data.text=FILE trains on yours\n", 1, true))
  t.check(output:find("\ndone after %d+s %(%d+s of training, %d+s of validation%): val_loss "
                      .. "%d%.%d+ %(2 of %d+ batches%); saved in runs/demo/"), output)
  t.check(output:find "\ncurves in runs/demo/report.html\nto train on:\n  %S+ %S+ "
          and output:find("/gpt2_train.lua resume=runs/demo steps=6\n", 1, true), output)
  local list = events "runs/demo"
  local last = list[#list]
  t.same({last.event, last.step}, {"done", 3})
  t.check(last.val_loss > 3 and last.val_loss < 6 and last.train_seconds > 0, "val_loss, seconds")
end)

t.case("it learns: the loss on a repeated sentence falls below 1", function()
  local status, output = shell [[train data.text=text.txt steps=150 optim.lr=1e-2 out=learn]]
  t.same(status, 0)
  local list = events "learn"
  t.check(list[#list].val_loss < 1, output)
end)

t.case("a run resumed in another process is the uninterrupted run to the bit", function()
  local same = "data.text=text.txt steps=8 save_every=4 keep=9 log_every=1 model.dropout=0.1 "
    .. "data.accum=2"
  local status, output = shell(([[
    train %s out=whole && mkdir part && cp -r whole/checkpoint-000004 part/ &&
    train %s out=part resume=auto]]):format(same, same))
  t.same(status, 0)
  t.check(output:find("resumed after step 4 from part/checkpoint-000004", 1, true), output)
  t.check(weights("whole", 8) == weights("part", 8), "the weights differ")
  t.check(moments("whole", 8) == moments("part", 8), "the moments differ")
  local losses = {whole = {}, part = {}}
  for name, list in pairs(losses) do
    for _, event in ipairs(events(name)) do
      if event.event == "step" and event.step > 4 then list[event.step] = event.loss end
    end
  end
  t.same(losses.part, losses.whole)
end)

-- Starts a long run, sends a signal once it trains, and resumes with the command it prints.
local function interrupt(signal, number)
  local out = "stop" .. number
  local status, output = shell(([[
    train data.text=text.txt steps=100000 log_every=1 out=%s >%s.log 2>&1 &
    await %s/metrics.jsonl '"step":3'; kill -%s $!; wait $!
    echo "ended with $?"; cat %s.log]]):format(out, out, out, signal, out))
  t.same(status, 0)
  t.check(output:find("ended with " .. number .. "\n", 1, true), output)
  local step, path, command = output:match(
    "\nnnlua: stopped after step (%d+), which is saved in (%S+); to resume:\n  ([^\n]+)\n$")
  t.check(step and tonumber(step) >= 3, output)
  t.same(path, ("%s/checkpoint-%06d"):format(out, step))
  t.check(command:find("^%S+ %S+/gpt2_train.lua resume=" .. out .. "$"), command)
  return tonumber(step), command
end

t.case("Ctrl-C finishes the step, saves, and prints the command to resume", function()
  local step, command = interrupt("INT", 130)
  local status, output = shell(("%s steps=%d"):format(command, step + 3))
  t.same(status, 0)
  t.check(output:find("resumed after step " .. step .. " from stop130/", 1, true), output)
  local list = events "stop130"
  t.same({list[#list].event, list[#list].step}, {"done", step + 3})
end)

t.case("SIGTERM does the same", function() interrupt("TERM", 143) end)

t.case("an interrupted and resumed run is the uninterrupted run to the bit", function()
  local same = "data.text=text.txt steps=400 log_every=1"
  local _, output = shell(([[
    train %s out=broken >broken.log 2>&1 &
    await broken/metrics.jsonl '"step":7'; kill -INT $!; wait $!
    train %s out=broken resume=auto; train %s out=unbroken]]):format(same, same, same))
  t.check(output:find "resumed after step %d+ from broken/", output)
  t.check(weights("broken", 400) == weights("unbroken", 400), "the weights differ")
end)

t.case("Ctrl-C during a validation does not wait for its end", function()
  local status, output = shell [[
    train steps=9 eval_every=1 eval_batches=0 data.batch=1 out=validating >validating.log 2>&1 &
    await validating/metrics.jsonl start; sleep 0.5; kill -INT $!; wait $!
    echo "ended with $?"; cat validating.log]]
  t.same(status, 0)
  t.check(output:find("ended with 130\n", 1, true), output)
  t.check(output:find("stopped after step 1, which is saved in validating/", 1, true), output)
end)

t.case("a finished run has nothing left to train", function()
  local same = "data.text=text.txt steps=2 out=finished"
  local status, output = shell(("train %s >/dev/null; train %s resume=auto"):format(same, same))
  t.same(status, 0)
  t.check(output:find("finished: no steps left\n", 1, true), output)
end)

t.case("Ctrl-C during the last sample prints where the run is saved", function()
  local _, output = shell [[
    train data.text=text.txt steps=2 sample.tokens=1000000 out=sampling >sampling.log 2>&1 &
    await sampling/metrics.jsonl checkpoint; sleep 0.5; kill -INT $!; wait $!
    echo "ended with $?"; cat sampling.log]]
  t.check(output:find("ended with 130\n", 1, true), output)
  local text = "nnlua: interrupted after the last step, which is saved in sampling/"
  t.check(output:find(text, 1, true), output)
end)
t.case("--plan predicts the cost of a step and trains nothing", function()
  local status, output = shell "train --plan out=plan"
  t.same(status, 0)
  t.check(output:find "\nparameters +%d+%.%dk\n", output)
  t.check(output:find "\nFLOPs +%S+ a token, %S+ a step of %S+ tokens\n", output)
  t.check(output:find "\ntasks +%d+ a step\nmemory +%d+%.?%d* [kM]B of RAM at the peak:\n", output)
  for _, kind in ipairs {"weights", "gradients", "optimizer", "activations", "workspace"} do
    t.check(output:find("\n  " .. kind .. " +%d+%.?%d* [kM]?B\n"), output)
  end
  t.check(output:find ": it fits\nlargest batch +data.batch=%d+", output)
  t.check(output:find "\ntime +about %S+ m?s a step, %S+ tokens/s; %d+ CPU workers, ", output)
  t.same(files.exists(files.join(folder, "plan")), false)
  status, output = shell "train --plan data.batch=4096 memory_gb=0.05"
  t.check(status == 0 and output:find "\navailable +50 MB: it fits\n", output)
  t.check(output:find "\nrecomputed +%d+ MB of activations, which takes %d+ %%", output)
  status, output = shell "train --plan data.batch=4096 memory_gb=0.05 memory.activations=keep"
  t.same(status, 0)
  t.check(output:find "\navailable +50 MB: it does not fit\nlargest batch +data.batch=%d+", output)
  t.check(output:find("\nto make it fit +memory.activations=auto, which can do with %d+ MB; or "
          .. "[%d.]+ MB of RAM %(memory_gb%); or memory.disk=FOLDER"), output)
end)

t.case("--plan states the time of the steps that are left", function()
  local function planned(words)
    local status, output = shell("train data.text=text.txt --plan " .. words)
    t.same(status, 0)
    local ms = output:match "\ntime +about ([%d.]+) ms a step"
    local count, seconds, unit = output:match "\n +([%d,]+) steps? takes? about ([%d.]+) (%a+)\n"
    t.check(unit, output)
    return count, tonumber(seconds) * ({ms = 1e-3, seconds = 1, minutes = 60})[unit], ms / 1e3
  end
  local count, seconds, per_step = planned "steps=12000 out=unused"
  t.same(count, "12,000")
  t.near(seconds, 12000 * per_step, {rel = 0.1})
  t.same(shell "train data.text=text.txt steps=2 out=left", 0)
  t.same((planned "steps=10 out=left resume=auto"), "8")
  local status, output = shell "train data.text=text.txt --plan steps=2 out=left resume=auto"
  t.check(status == 0 and not output:find " steps? takes? about ", output)
end)

t.case("--plan works for GPT-3 175B on any machine", function()
  local status, output = shell([[train --plan preset=gpt3-175b model.layers=96 model.heads=96 \
    model.embd=12288 model.context=2048 data.batch=1 memory_gb=0.1]])
  t.same(status, 0)
  t.check(output:find "\nparameters +175B\n" and output:find "\nmemory +%d%.%d TB of RAM", output)
  t.check(output:find "it does not fit\nlargest batch +none fits: the parameters", output)
end)

t.case("a .bin file trains without a vocabulary; the sample is token ids", function()
  local status, output = shell [[
    printf '\1\0\2\0\3\0\4\0%.0s' $(seq 200) >ids.bin
    train data.bin=ids.bin model.vocab=8 steps=3 out=bin]]
  t.same(status, 0)
  t.check(output:find("token ids (data.vocabulary=FOLDER with a tokenizer would give text): 0", 1,
                      true), output)
  t.check(output:find ": 0 %d[%d ]+\ndone", output)
end)

t.case("a terminal shows one updated line; other output has plain lines", function()
  local status, output = shell [[
    command -v script >/dev/null || exit 77
    export TERM=xterm
    train data.text=text.txt steps=30 out=plain
    script -qec "stty cols 200; train data.text=text.txt steps=30 out=tty" /dev/null
    NO_COLOR=1 script -qec "train data.text=text.txt steps=30 out=tty2" /dev/null]]
  if status == 77 then t.skip "there is no script(1) to make a terminal" end
  local _, dumb = shell [[
    TERM=dumb script -qec "train data.text=text.txt steps=30 out=dumb" /dev/null]]
  t.check(dumb:find "\nstep 10/30  loss %d" and not dumb:find "\rstep", dumb)
  t.same(status, 0)
  local pattern = "^(.-\ncurves in plain/%S+\n)(.-\ncurves in tty/%S+\r?\n)(.*)$"
  local plain, tty, bare = output:match(pattern)
  t.check(plain and not plain:find "[\r\27]" and plain:find "\nstep 10/30  loss %d", output)
  t.check(tty:find "\rstep +%d+/30  loss [^\r\n]+eta %d+s\27%[K" and tty:find "\27%[1mdone", tty)
  t.check(bare:find "\rstep " and not bare:find "\27%[1m", bare)
end)

t.finish()
