-- Recipes on several ranks: losses, weights and checkpoints are those of one process, also when a
-- run is resumed with another number of ranks. Skipped where MPI is not installed or not built in.
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"
local program = mpi.program

local folder = t.folder()
local settings = "data.text=text.txt data.batch=12 model.layers=2 model.embd=32 model.heads=2 "
  .. "model.context=16 schedule.warmup=2 log_every=1 eval_every=4 eval_batches=2 final_batches=2 "
  .. "sample.tokens=10 save_every=4 steps=12"

local function case(name, f)
  t.case(name, function()
    mpi.need()
    files.write(folder .. "/text.txt", ("It was a bright cold day, and the clocks were striking "
                .. "thirteen. "):rep(40))
    f()
  end)
end

local function shell(command) return t.shell(("cd '%s'; %s"):format(folder, command)) end

-- The command that trains into the folder `out`. ranks: nil for a process without mpirun.
local function command(ranks, out, words)
  return ("timeout 300 '%s' %s '%s/recipes/gpt2_train.lua' %s out=%s/%s %s"):format(
    program, ranks and "--ranks " .. ranks or "", root, settings, folder, out, words or "")
end
local function train(...)
  local status, output = shell(command(...))
  t.check(status == 0, output)
  return output
end

-- The shell commands that wait until a test is true, at most 100 seconds.
local function waits(test)
  return ("for i in $(seq 2000); do [ %s ] && break; sleep 0.05; done; [ %s ] || "
          .. "echo waited in vain; "):format(test, test)
end

-- The losses, and the files of the checkpoint after a step.
local function results(out, step)
  local found = {}
  for line in io.lines(("%s/%s/metrics.jsonl"):format(folder, out)) do
    local event = files.parse_json(line)
    if event.event == "step" or event.event == "eval" then
      found[event.event .. event.step] = event.loss or event.val_loss
    end
  end
  for _, name in ipairs {"model", "optimizer"} do
    local path = ("%s/%s/checkpoint-%06d/%s.safetensors"):format(folder, out, step, name)
    found[name] = files.crc32(files.read(path))
  end
  return found
end

local alone
local function same_as_alone(out)
  if not alone then
    train(nil, "alone", "cluster.shards=3")
    alone = results("alone", 12)
  end
  t.check(alone.step12 and alone.eval8 and alone.model, "no results")
  t.same(results(out, 12), alone)
end

case("a run on 2 ranks has the losses, the weights and the moments of one process", function()
  local output = train(2, "two", "cluster.shards=3")
  t.check(select(2, output:gsub("done after", "")) == 1, output)
  t.check(output:find(", 2 ranks, 3 shards, each rank with %d+ CPU and 0 GPU workers, "), output)
  t.check(not output:find "\27", "control characters in a file: " .. output)
  same_as_alone "two"
end)

case("a run goes on with another number of ranks", function()
  shell(command(2, "moved", "cluster.shards=3") .. " & " .. waits "-e moved/checkpoint-000004"
        .. "pkill -KILL -n -f '[g]pt2_train.lua.*'$PWD/moved; wait")
  train(3, "moved", "resume=auto")
  same_as_alone "moved"
end)

case("ranks that keep a part of the weights each give the results of one process", function()
  -- The samples are longer than the context.
  local words = "cluster.shards=3 model.embd=128 model.layers=3 sample.tokens=20"
  train(nil, "whole", words)
  words = words .. " cluster.shard=weights"
  shell(command(2, "parts", words) .. " & " .. waits "-e parts/checkpoint-000004"
        .. "pkill -KILL -n -f '[g]pt2_train.lua.*'$PWD/parts; wait")
  train(3, "parts", words .. " resume=auto")
  t.same(results("parts", 12), results("whole", 12))
end)

case("a training that starts from a model in a folder divides its weights too", function()
  train(nil, "base", "model.embd=128 steps=4")
  local words = "cluster.shards=2 model.embd=128 model.dtype=bf16 steps=4 init=base"
  train(nil, "tuned", words)
  train(2, "tuned-2", words .. " cluster.shard=weights")
  t.same(results("tuned-2", 4), results("tuned", 4))
end)

-- Memory for a part of the model, beside a disk of its own for each rank.
local function tiers(ram)
  return (" memory.ram=%s memory.disk=%s/disk memory.disk_in_ram=true"):format(ram, folder)
end

case("ranks with memory tiers give the results of one process with enough memory", function()
  for _, shard in ipairs {"optimizer", "weights"} do
    -- With 132, slots are larger than tiles.
    local words = "cluster.shards=3 model.embd=132 model.layers=3 cluster.shard=" .. shard
    if shard == "optimizer" then train(nil, "resident", words) end
    for ranks = 2, 3 do
      local out = ("tiers-%s-%d"):format(shard, ranks)
      local output = train(ranks, out, words .. tiers "5MB")
      t.check(output:find "written to the disk: %d+ MB", output)
      t.same(results(out, 12), results("resident", 12))
    end
  end
end)

-- Every other start has memory tiers. RANKS_KILLS: how often a rank is killed.
case("a run whose ranks are killed at random moments ends like an undisturbed run", function()
  local words = "cluster.shards=4 model.embd=64 steps=300 save_every=10 eval_every=60"
  train(nil, "undisturbed", words)
  local starts = 0
  local function memory()
    starts = starts + 1
    return starts % 2 == 1 and tiers "1MB" or ""
  end
  local kills = tonumber(os.getenv "RANKS_KILLS") or 2
  local completed = 0
  math.randomseed(tonumber(os.getenv "NNLUA_TEST_SEED") or 1)
  while kills > 0 do
    local ranks, seconds, victim = math.random(4), 0.5 + 4 * math.random(), math.random(4)
    local kill = [[sleep %.2f
      until ranks=($(pgrep -P "$(pgrep -f "^mpirun.*$PWD/killed")"))
            [ ${#ranks[@]} -gt 0 ] || ! kill -0 $!; do sleep 0.05; done 2>/dev/null
      [ ${#ranks[@]} = 0 ] || kill -KILL ${ranks[%d %% ${#ranks[@]}]}; wait $!]]
    local status, output = shell(command(ranks, "killed", words .. memory() .. " resume=auto")
                                 .. " & " .. kill:format(seconds, victim))
    if status == 0 then                      -- it ended before the kill: another starts
      t.same(results("killed", 300), results("undisturbed", 300))
      shell "rm -r killed"
      completed = completed + 1
      t.check(completed < 100, "100 runs ended before a rank was killed")
    else
      -- mpirun ends the others without a word if a rank dies before all are connected
      local silent = status == 137 and (ranks == 1 or output == "")
      t.check(silent or output:find "nnlua: rank %d", ("%d ranks, killed after %.2f s: status %d, "
              .. "%s"):format(ranks, seconds, status, output))
      kills = kills - 1
    end
  end
  train(2, "killed", words .. tiers "1MB" .. " resume=auto")
  t.same(results("killed", 300), results("undisturbed", 300))
end)

case("Ctrl-C saves once, and the run is resumed with the command that it prints", function()
  local status, output = shell(command(2, "stopped", "cluster.shards=3 steps=30000")
    .. " >log 2>&1 & launcher=$!; " .. waits "$(grep -c 'step  *5' log) -gt 0"
    .. "pkill -INT -P $launcher || echo no launcher; wait $launcher; status=$?; cat log; "
    .. "exit $status")
  t.check(status == 130, ("status %d: %s"):format(status, output))
  t.check(select(2, output:gsub("stopped after step", "")) == 1, output)
  t.check(select(2, output:gsub("finishing this step", "")) == 1, output)
  t.check(output:find "%-%-ranks 2 %S*gpt2_train.lua resume=%S*/stopped\n", output)
  local step = tonumber(output:match "stopped after step (%d+)")
  t.check(files.exists(("%s/stopped/checkpoint-%06d/state.json"):format(folder, step)), output)
end)

case("a loss that is not finite ends all ranks with one message", function()
  local on_one_core = "taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') "
  local status, output = shell(on_one_core .. command(2, "diverged", "optim.lr=1e30 optim.clip=0 "
                                                      .. "schedule.warmup=0 schedule.min_lr=0"))
  t.check(output:find "warning: 2 ranks share 1 core on %S+, and .-; start at most 1 there\n",
          output)
  t.check(status == 1 and select(2, output:gsub("nnlua: ", "")) == 1, output)
  t.check(output:find "nnlua: the %l[%l ]* is %S+ at step %d+; lower optim.lr", output)
end)

case("a profile has a row for each rank, and its trace has the tasks of all", function()
  local output = train(2, "profiled", "profile=true steps=8 cluster.shards=2 model.embd=128"
                       .. " model.layers=3" .. tiers "5MB")
  for rank = 0, 1 do
    local sent, received = output:match(("rank %d: %%d+%%%% busy, sent (%%S+) .B in %%d+ messages, "
                                         .. "received (%%S+) .B; disk read "):format(rank))
    t.check(tonumber(sent) and tonumber(received), output)
  end
  local tasks, names = {0, 0}, {}
  for _, e in ipairs(files.parse_json(files.read(folder .. "/profiled/trace.json")).traceEvents) do
    if e.cat == "task" and e.ph == "X" then tasks[e.pid] = tasks[e.pid] + 1 end
    if e.name == "process_name" then names[e.pid] = e.args.name end
  end
  t.same(names, {"rank 0", "rank 1"})
  t.check(tasks[1] > 100 and tasks[2] > 100, ("%d and %d tasks"):format(tasks[1], tasks[2]))
end)

t.finish()
