-- Trains a small GPT-2 for a few steps and prints the losses and checksums of the weights. Run by
-- ranks.lua on one rank or several: ranks_model.lua shards=4 steps=3 accum=1
local nn = require "nn"
local GPT2 = require "models.gpt2"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"
local given = {shards = "1", steps = "3", accum = "1", batch = "8", clip = "1", fail = "",
               shard = "optimizer", dtype = "f32", layers = "2", embd = "64", ram = "0",
               disk = "", slots = "0", optim = "AdamW", graphs = "0"}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  given[name] = value
end

io.stdout:setvbuf "line"
nn.devices {cuda_graphs = given.graphs ~= "0"}
local slots = given.slots ~= "0" and tonumber(given.slots) or nil
if given.disk ~= "" then
  nn.memory_tiers {gpu = slots, ram = tonumber(given.ram), disk = given.disk, disk_in_ram = true}
elseif slots then
  nn.memory_tiers {gpu = slots}
end
nn.seed(7)
nn.cluster {shards = tonumber(given.shards), shard = given.shard}
local model = GPT2 {layers = tonumber(given.layers), heads = 2, embd = tonumber(given.embd),
                    context = 32, vocab = 96, dropout = 0.1, dtype = given.dtype}
local optim = nn[given.optim](model, {lr = 1e-3, clip = tonumber(given.clip), weight_decay = 0.1,
                                      skip_nonfinite = given.clip ~= "0"})
local step = nn.compile(function(ids, targets)
  local loss = nn.accumulate(model, tonumber(given.accum), ids, targets)
  return loss, optim:step()
end)

-- A copy of a weight, of which several ranks may keep a part each.
local function whole(weight)
  if given.shard == "optimizer" then return weight end
  return nn.compile(function() return weight:clone() end)()
end

local before
for number = 1, tonumber(given.steps) do
  local text = {}
  for i = 1, tonumber(given.batch) * 33 do text[i] = (i * i + number * 17) % 96 end
  local rows = nn.tensor(text, {dtype = "i32"}):reshape(tonumber(given.batch), 33)
  local loss, norm = step(rows:slice(2, 1, 32):clone(), rows:slice(2, 2, 33):clone())
  if number == 2 and given.fail ~= "" and nn.ranks().rank == 1 then
    if given.fail == "error" then error "a rank fails" end
    if given.fail == "kill" then os.execute("kill -9 $PPID") end
    if given.fail == "stop" then os.execute("kill -STOP $PPID") end
    if given.fail == "pause" then              -- all ranks
      os.execute([[ranks=$(pgrep -P $(ps -o ppid= $PPID) -f shards=)
        kill -STOP $ranks; sleep 3; kill -CONT $ranks]])
    end
  end
  print(("loss %.17g norm %.17g"):format(loss:item(), norm:item()))
  if number == tonumber(given.steps) - 1 then
    nn.sync()
    before = nn.ranks()
    nn.reset_peak()
  end
end
nn.sync()
local sent, memory = nn.ranks(), nn.memory()
local bytes = 0
for _, p in ipairs(model:parameters()) do
  bytes = bytes + p.tensor:bytes()
  print(p.path, checksums.of(whole(p.tensor)))
end
io.stderr:write(("sent rank %d messages %d bytes %d weights %d kept %d peak %d\n"):format(sent.rank,
  sent.messages_sent - before.messages_sent, sent.bytes_sent - before.bytes_sent, bytes,
  memory.in_use, memory.peak))
local cpus, gpus = nn.workers()
io.stderr:write(("workers rank %d cpus %d gpus %d\n"):format(sent.rank, cpus, gpus))
if slots then
  io.stderr:write(("slots rank %d written %d\n"):format(sent.rank, memory.ram_tier.written))
end
if given.disk ~= "" then
  io.stderr:write(("disk rank %d read %d written %d\n"):format(sent.rank, memory.disk.read,
    memory.disk.written))
end
if given.fail == "late" and sent.rank == 1 then os.execute("kill -STOP $PPID") end
