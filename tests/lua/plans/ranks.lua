-- Plans of recipes for several ranks: those that a description has, and those that run.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local folder = t.folder()
files.write(files.join(folder, "text.txt"),
            ("To be, or not to be, that is the question.\n"):rep(3000))
local settings = "data.text=text.txt model.layers=2 model.heads=4 model.embd=128 model.dtype=f32 "
  .. "model.context=64 data.batch=16 log_every=1 eval_every=0 final_batches=1 sample.tokens=0 "
  .. "steps=8"

-- Runs a training with `words` -> status, output. ranks: nil for a process without mpirun; machine:
-- a description, or nil.
local function start(ranks, words, machine)
  return t.shell(("cd %s; NNLUA_MACHINE='%s' timeout -k 5 100 '%s' %s %s/recipes/gpt2_train.lua "
                  .. "%s %s"):format(folder, machine or "", mpi.program,
                                     ranks and "--ranks " .. ranks or "", host.root, settings,
                                     words))
end
local function train(...)
  local status, output = start(...)
  t.check(status == 0, output)
  return output
end

local scale = {B = 1, kB = 1e3, MB = 1e6, GB = 1e9}
local function bytes(text)
  local number, unit = text:match "^([%d.]+) (%a+)$"
  return tonumber(number) * scale[unit]
end

-- {needs=, sends=, receives=} of each rank, from the table of --plan.
local function rows(output)
  local found = {}
  for rank, needs, sends, receives in output:gmatch(
    "\nrank (%d+) +needs ([%d.]+ %a+)[^\n]-sends ([%d.]+ %a+) and receives ([%d.]+ %a+)") do
    found[tonumber(rank) + 1] = {needs = bytes(needs), sends = bytes(sends),
                                 receives = bytes(receives)}
  end
  return found
end

-- The bytes of a kind in the table.
local function of_kind(output, kind)
  return bytes(output:match("\n  " .. kind .. " +([%d.]+ %a+)"))
end

t.case("a plan for described ranks divides moments, and weights if they are sharded", function()
  local machine = "ranks=4 cpus=2 ram=1GB gflops=50 rank_link=1GB/s"
  local words = "--plan model.layers=8 model.embd=160 "
  local alone = train(nil, words, "cpus=2 ram=1GB gflops=50")
  local moments = train(nil, words, machine)
  local weights = train(nil, words .. "cluster.shard=weights", machine)
  t.near(of_kind(moments, "optimizer"), of_kind(alone, "optimizer") / 4, {rel = 0.15})
  t.near(of_kind(moments, "weights"), of_kind(alone, "weights"), {rel = 0.01})
  t.near(of_kind(weights, "weights"), of_kind(alone, "weights") / 4, {rel = 0.15})
  for _, output in ipairs {moments, weights} do
    local sent, received = 0, 0
    for _, row in ipairs(rows(output)) do
      sent, received = sent + row.sends, received + row.receives
    end
    t.same(#rows(output), 4)
    t.near(sent, received, {rel = 0.05})
    t.check(output:find "link of a rank +1.0 GB/s each way, busy up to %d+ %% of the time\n",
            output)
  end
  t.same(#rows(alone), 0)
end)

t.case("a plan names the ranks that lack memory, and batches that shards can divide", function()
  local output = train(nil, "--plan cluster.shards=4 data.batch=4",
                       "ranks=3 cpus=2 ram=5.2MB gflops=50")
  t.check(output:find "rank 0 +needs [%d.]+ MB, but has 5.2 MB; computes", output)
  t.check(output:find "it does not fit" and output:find "assumed: describe rank_link", output)
  local larger = train(nil, "--plan cluster.shards=4 data.batch=4",
                       "ranks=3 cpus=2 ram=100MB gflops=50")
  local batch = larger:match "largest batch +data.batch=(%d+)"
  t.check(batch and tonumber(batch) % 4 == 0 and tonumber(batch) > 4, larger)
  local status, refused = start(nil, "--plan cluster.shards=2", "ranks=3 cpus=2")
  t.check(status == 1 and refused:find "shards=2 is too few for 3 ranks", refused)
end)

for _, shard in ipairs {"optimizer", "weights"} do
  t.case("ranks move and need what --plan says: cluster.shard=" .. shard, function()
    mpi.need()
    local plan = train(2, "--plan cluster.shard=" .. shard)
    local run = train(2, ("--profile profile_steps=4-6 cluster.shard=%s out=%s"):format(shard,
                                                                                       shard))
    local planned, count = rows(plan), 0
    for rank, sent, received in run:gmatch(
      "\nrank (%d): [^\n]-sent ([%d.]+ %a+) in [^\n]-received ([%d.]+ %a+)") do
      local row = planned[tonumber(rank) + 1]
      t.near(row.sends, bytes(sent) / 3, {rel = 0.06})
      t.near(row.receives, bytes(received) / 3, {rel = 0.06})
      count = count + 1
    end
    t.same(count, 2)
    t.near(bytes(run:match "  mem ([%d.]+ %a+)"), planned[1].needs, {rel = 0.1})
  end)
end

t.case("ranks plan a batch that none records in full, and described ranks do not train", function()
  mpi.need()
  local output = train(2, "--plan data.batch=4000 cluster.shard=weights")
  t.same(#rows(output), 2)
  t.check(output:find "\ntime +about", output)
  local status, refused = start(nil, "steps=1", "ranks=2 cpus=2")
  t.check(status == 1 and refused:find "described with ranks=2 .-, but 1 runs; add %-%-plan",
          refused)
end)

t.case("what fits on ranks together starts there, and is refused on one", function()
  mpi.need()
  local words = "model.embd=256 cluster.shard=weights memory_gb=0.024 memory.activations=keep "
    .. "data.batch=4 model.context=16 steps=2 "
  local status, alone = start(nil, words .. "out=alone")
  t.check(status == 1 and alone:find "the training cannot fit: a step needs", alone)
  train(2, words .. "out=together")
  status, alone = start(2, words .. "memory_gb=0.010 out=less")
  t.check(status == 1 and alone:find "nnlua: .*the training cannot fit", alone)
  status, alone = start(2, words .. "memory_gb=0.014 out=less")
  local state, rest = alone:match "bytes: ([%d.]+) MB of parameters and moments, ([%d.]+) MB of"
  t.check(status == 1 and tonumber(state) < 12 and tonumber(rest) > 8, alone)
end)

t.finish()
