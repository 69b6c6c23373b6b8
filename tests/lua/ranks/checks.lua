-- nn.checks "tiles" on several ranks: the same bits with it, and it finds wrong messages
-- (engine/base/planted_faults.h). Skipped where MPI is not installed or not built in.
-- Runs alone: a rank that is silent for seconds counts as lost.
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local script = root .. "/tests/lua/support/tier_turns.lua "
local size = "embd=128 batch=4 context=16 vocab=300 layers=2 steps=3 shards=2 accum=2 "

-- Runs the training -> its status, output and messages.
local function run(environment, ranks, words)
  mpi.need()
  local folder = t.folder()
  local status, output = t.shell(("%s timeout -k 1 100 '%s' %s %s %s disk=%s folder=%s 2>%s/log")
    :format(environment, mpi.program, ranks > 1 and "--ranks " .. ranks or "", script,
            size .. words, folder, folder, folder))
  return status, output, files.read(folder .. "/log")
end

for shard, more in pairs {optimizer = "validate=1 save=2", weights = "sample=2 save=1"} do
  t.case("checks of tiles change no bit of ranks that divide: " .. shard, function()
    local words = ("shard=%s %s"):format(shard, more)
    local _, expected, messages = run("", 1, words)
    local ram = math.floor(0.6 * tonumber(messages:match "peak (%d+)"))
    for _, way in ipairs {{2, ""}, {2, " ram=" .. ram}} do
      local status, output, log
      for _ = 1, 8 do
        status, output, log = run("NNLUA_CHECKS=tiles NNLUA_DELAYS=5", way[1], words .. way[2])
        local least = log:match "plan for this program needs at least .- %((%d+) bytes"
        if not least then break end
        way[2] = " ram=" .. least
      end
      t.check(status == 0, log)
      t.same(output, expected)
    end
  end)
end

-- fails(plant, watchdog) -> the messages of a run with this planted fault, which must be an error
local function fails(plant, watchdog)
  local status, _, log = run(("NNLUA_CHECKS=tiles NNLUA_WATCHDOG=%d NNLUA_PLANT=%s"):format(
    watchdog, plant), 2, "shard=weights")
  t.check(status == 1, plant .. ": " .. log)
  return log
end

local standstill = "the ranks stand still: no task, message, transfer or write has ended for 5 s"
local wrong_value = "receive: tile %d+ from rank %d has the CRC%-32"

t.case("checks find a message with a wrong byte", function()
  for _, plant in ipairs {"message_altered:31:0", "message_altered:12:1"} do
    local log = fails(plant, 60)
    t.check(log:find(wrong_value), plant .. ": " .. log)
  end
end)

t.case("checks find a message in the place of another one", function()
  local found = 0
  for _, plant in ipairs {"message_swapped:7:0", "message_swapped:22:1", "message_swapped:44:1"} do
    -- the ranks stand still where the next message waits for the first one
    local log = fails(plant, 5)
    if log:find(wrong_value) then
      found = found + 1
    else
      t.check(log:find(standstill, 1, true), plant .. ": " .. log)
    end
  end
  t.check(found > 0, "no planted fault led to a wrong value")
end)

t.case("ranks that stand still end with what each waits for, and its stacks", function()
  for _, plant in ipairs {"message_lost:18:0", "message_lost:40:1"} do
    local log = fails(plant, 5)
    t.check(log:find(standstill, 1, true), plant .. ": " .. log)
    for rank = 0, 1 do
      local report = log:match(("rank %d: (it waits for .*)"):format(rank))
      t.check(report, plant .. ": " .. log)
      t.check(report:find "thread %d+, CPU 0:" and report:find "nn::wait", report)
    end
    local sender = plant:match "%d+$"
    local message = ("for %%d+ s: tile %%d+ of [^\n]* from rank %s, message %%d"):format(sender)
    t.check(log:find(message), plant .. ": " .. log)
  end
end)

t.finish()
